"""What a link asks for in its source or target, for Proton's blocking clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from proton import Described, Link, Message, Terminus, Timeout, symbol, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from broker.codec.owned import owned

_numbers = count(1)
SELECTOR = 0x0000468C00000004


class Asks(LinkOption):
    """A terminus as a test wants it."""

    def __init__(
        self,
        *capabilities: str,
        durable: bool = False,
        expiry: int | None = None,
        timeout: int = 0,
        copy: bool = False,
        lifetime: int = 0,
        filters: Mapping[str, Any] | None = None,
    ) -> None:
        self.capabilities = capabilities
        self.durable = durable
        self.expiry = expiry
        self.timeout = timeout
        self.copy = copy
        self.lifetime = lifetime
        self.filters = filters

    def apply(self, link: Link) -> None:
        """Before the link is opened."""
        terminus = link.target if link.is_sender else link.source
        if self.capabilities:
            terminus.capabilities.put_object([symbol(each) for each in self.capabilities])
        if self.durable:
            terminus.durability = Terminus.DELIVERIES
        if self.expiry is not None:
            terminus.expiry_policy = self.expiry
        terminus.timeout = self.timeout
        if self.copy:
            terminus.distribution_mode = Terminus.DIST_MODE_COPY
        if self.lifetime:
            policy = {symbol("lifetime-policy"): Described(ulong(self.lifetime), [])}
            terminus.properties.put_object(policy)
        if self.filters:
            terminus.filter.put_object({symbol(key): value for key, value in self.filters.items()})


def selector(text: str) -> dict[str, Any]:
    """The filter as Qpid JMS sends it."""
    return {"jms-selector": Described(ulong(SELECTOR), text)}


LASTING = Asks(durable=True, expiry=Terminus.EXPIRE_NEVER)


@contextmanager
def connected(url: str, container: str = "", host: str | None = None) -> Iterator[BlockingConnection]:
    """A blocking connection of a container, closed at the end if the test hasn't."""
    made = BlockingConnection(url, timeout=10, container_id=container or None, virtual_host=host)
    try:
        yield made
    finally:
        made.close()


def send(sender: BlockingSender, *bodies: Any, **fields: Any) -> None:
    """A message for each body."""
    for body in bodies:
        sender.send(Message(body=body, **fields))


def take(receiver: BlockingReceiver, count: int) -> list[Any]:
    """The bodies of so many messages, each accepted."""
    bodies = []
    for _ in range(count):
        bodies.append(owned(receiver.receive(timeout=20).body))
        receiver.accept()
    flush(receiver.connection)
    return bodies


def is_silent(receiver: BlockingReceiver, seconds: float = 0.3) -> bool:
    """Whether nothing comes for a while."""
    try:
        message = receiver.receive(timeout=seconds)
    except Timeout:
        return True
    raise AssertionError(f"{message.body!r} came")


def detach(receiver: BlockingReceiver | BlockingSender) -> None:
    """Leave without closing: what is at the link's end stays as its expiry policy says."""
    receiver.link.detach()
    flush(receiver.connection)


def close(link: BlockingReceiver | BlockingSender) -> None:
    """Done with a link, and with what stands at its end."""
    link.close()  # type: ignore[no-untyped-call]


def flush(connection: BlockingConnection) -> None:
    """All that was said before has been heard once what comes after it is answered."""
    close(connection.create_sender(None, name=f"flush-{next(_numbers)}"))
