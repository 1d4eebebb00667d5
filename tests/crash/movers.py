"""Applications that move messages from one queue to another, each batch in a transaction of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from proton import Delivery, Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

SOURCE = "in"
TARGET = "out"


class Mover(MessagingHandler, TransactionHandler):
    """Takes a batch from ``in``, sends each message to ``out``, then commits or rolls back; until stopped.

    ``confirmed`` are the ids whose commit it heard of, ``undone`` those whose rollback it heard of.
    """

    def __init__(self, url: str, seed: int, most: int = 20) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True)
        self.url = url
        self.dice = random.Random(seed)
        self.most = most
        self.confirmed: set[str] = set()
        self.undone: set[str] = set()
        self.failures: list[str] = []
        self.batch: list[str] = []
        self.wanted = 0
        self.commits = 0
        self.transaction = None
        self.stopping = False

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        self.container = event.container
        self.connection = self.container.connect(self.url, reconnect=False)
        self.receiver = self.container.create_receiver(self.connection, SOURCE)
        self.sender = self.container.create_sender(self.connection, TARGET)
        self.declare()

    def declare(self) -> None:
        self.batch = []
        self.container.declare_transaction(
            self.connection, handler=self, settle_before_discharge=self.dice.random() < 0.5
        )

    def on_transaction_declared(self, event) -> None:  # type: ignore[no-untyped-def]
        self.transaction = event.transaction
        self.wanted = self.dice.randint(1, self.most)
        self.receiver.flow(self.wanted - self.receiver.credit)

    def on_message(self, event) -> None:  # type: ignore[no-untyped-def]
        if self.transaction is None:
            event.delivery.update(Delivery.RELEASED)
            event.delivery.settle()
            return
        body = event.message.body
        self.batch.append(body)
        self.transaction.send(self.sender, Message(body=body, durable=True))
        self.transaction.accept(event.delivery)
        if len(self.batch) >= self.wanted:
            ending, self.transaction = self.transaction, None
            if self.dice.random() < 0.25:
                ending.abort()
            else:
                ending.commit()

    def on_transaction_committed(self, event) -> None:  # type: ignore[no-untyped-def]
        self.confirmed.update(self.batch)
        self.commits += 1
        self.declare()

    def on_transaction_aborted(self, event) -> None:  # type: ignore[no-untyped-def]
        self.undone.update(self.batch)
        self.declare()

    def on_transaction_commit_failed(self, event) -> None:  # type: ignore[no-untyped-def]
        self.failures.append("commit failed")

    def on_link_error(self, event) -> None:  # type: ignore[no-untyped-def]
        self.failures.append(str(event.link.remote_condition))

    def on_transport_error(self, event) -> None:  # type: ignore[no-untyped-def]
        """The broker was killed."""


class Putter(MessagingHandler):
    """Sends ids to ``in`` and waits until all are accepted."""

    def __init__(self, url: str, ids: Sequence[str]) -> None:
        super().__init__()
        self.url = url
        self.ids = list(ids)
        self.left = len(self.ids)

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        self.connection = event.container.connect(self.url)
        event.container.create_sender(self.connection, SOURCE)

    def on_sendable(self, event) -> None:  # type: ignore[no-untyped-def]
        while self.ids and event.sender.credit:
            event.sender.send(Message(body=self.ids.pop(), durable=True))

    def on_accepted(self, event) -> None:  # type: ignore[no-untyped-def]
        self.left -= 1
        if self.left == 0:
            self.connection.close()


class Getter(MessagingHandler):
    """Takes all there is from a queue: until nothing has come for a while."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(prefetch=500)
        self.url = url
        self.queue = queue
        self.got: list[str] = []

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        self.connection = event.container.connect(self.url)
        event.container.create_receiver(self.connection, self.queue)

    def on_message(self, event) -> None:  # type: ignore[no-untyped-def]
        self.got.append(event.message.body)


def run_for(containers: Sequence[Container], seconds: float) -> None:
    """Give each of them time in turn, so many seconds in all."""
    deadline = time.monotonic() + seconds
    for container in containers:
        container.timeout = 0
        container.start()
    while time.monotonic() < deadline:
        for container in containers:
            container.process()
        time.sleep(0.0005)


def take_all(url: str, queue: str, seconds: float = 30.0) -> list[str]:
    """All that a queue has, once nothing more has come for half a second."""
    getter = Getter(url, queue)
    container = Container(getter)
    container.timeout = 0.05
    container.start()
    deadline = time.monotonic() + seconds
    quiet_since, before = time.monotonic(), 0
    while time.monotonic() - quiet_since < 0.5:
        assert time.monotonic() < deadline, f"{len(getter.got)} messages and no end"
        container.process()
        if len(getter.got) != before:
            quiet_since, before = time.monotonic(), len(getter.got)
    getter.connection.close()
    for _ in range(5):
        container.process()
    return getter.got
