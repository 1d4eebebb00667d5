"""Small applications for a cell's tests: they send, take, and leave things half done."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from proton import Delivery, Described, Message, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Filter
from proton.utils import BlockingConnection

from broker.codec.owned import owned

ANSWER_S = 30.0


@contextmanager
def connection(port: int, **options: Any) -> Iterator[BlockingConnection]:
    """A connection to a member."""
    with closing(BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=ANSWER_S, **options)) as made:
        yield made


def send(port: int, address: str, bodies: Iterable[Any], **fields: Any) -> None:
    """Send durable messages, and wait until all are accepted.

    Their headers say first-acquirer, so that a broker which may send one again has to say so.
    """
    with connection(port) as made:
        link = made.create_sender(address).link
        deliveries: list[Any] = []
        for body in bodies:
            made.wait(lambda: link.credit > 0, msg=f"credit from {address}")
            deliveries.append(link.send(Message(body=body, durable=True, first_acquirer=True, **fields)))
        made.wait(lambda: all(each.remote_state for each in deliveries), msg=f"{address}'s answers")
        assert all(each.remote_state == Delivery.ACCEPTED for each in deliveries)


def take(port: int, address: str, count: int) -> list[Message]:
    """Take and accept so many messages."""
    with connection(port) as made:
        receiver = made.create_receiver(address, credit=10)
        found = []
        for _ in range(count):
            message = receiver.receive(timeout=ANSWER_S)
            message.body = owned(message.body)
            found.append(message)
            receiver.accept()
        return found


def read_stream(port: int, address: str, count: int) -> list[tuple[int, Any]]:
    """Return offsets and bodies of the first messages of a stream."""
    spec = symbol("rabbitmq:stream-offset-spec")
    with connection(port) as made:
        options = Filter({spec: Described(spec, "first")})
        receiver = made.create_receiver(address, credit=100, options=options)
        found = []
        for _ in range(count):
            message = receiver.receive(timeout=ANSWER_S)
            assert message.annotations is not None
            found.append((int(message.annotations[symbol("x-opt-sluice-offset")]), owned(message.body)))
            receiver.accept()
        return found


def bodies(messages: Sequence[Message]) -> list[Any]:
    """Return what is in them."""
    return [each.body for each in messages]


def call(port: int, method: str, path: str, body: object = None) -> Any:
    """Return the answer of the HTTP API to a change."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None


class HalfDone(MessagingHandler, TransactionHandler):
    """Commits one transaction, and leaves a second one open with its messages sent."""

    def __init__(self, port: int, address: str, committed: Sequence[str], left: Sequence[str]) -> None:
        super().__init__()
        self.is_committed = False
        self.is_left = False
        self._url = f"amqp://127.0.0.1:{port}"
        self._address = address
        self._batches = [list(committed), list(left)]
        self._sent = 0

    def on_start(self, event: Any) -> None:
        self._container = event.container
        self._connection = event.container.connect(self._url, reconnect=False)
        self._sender = event.container.create_sender(self._connection, self._address)
        self._declare()

    def _declare(self) -> None:
        self._container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        batch = self._batches.pop(0)
        for body in batch:
            event.transaction.send(self._sender, Message(body=body, durable=True))
        if self._batches:
            event.transaction.commit()
        else:
            self._left = event.transaction
            # The session's frames are in order: once the broker answers to this link, it has the messages.
            self._container.create_receiver(self._connection, "half-done-answers", name="after")

    def on_transaction_committed(self, event: Any) -> None:
        self.is_committed = True
        self._declare()

    def on_link_opened(self, event: Any) -> None:
        if event.link.name == "after":
            self.is_left = True

    def run(self) -> Container:
        """Work until the second transaction is left open; the connection stays until the container goes."""
        container = Container(self)
        container.timeout = 0.02
        container.start()
        deadline = time.monotonic() + ANSWER_S
        while not self.is_left:
            assert time.monotonic() < deadline, f"committed: {self.is_committed}"
            container.process()
        return container
