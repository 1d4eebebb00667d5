"""What a queue holds in the end, and rows to fill it with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from proton import Message

from broker.client.link import Connection
from broker.client.request import Management

SILENCE_S = 0.5


@dataclass(frozen=True)
class Tally:
    """Messages against what should have come; ``bodies`` counts each."""

    bodies: Counter[bytes]
    ids: Counter[object]

    @classmethod
    def of(cls, found: Iterable[Message]) -> Tally:
        """Counted."""
        listed = list(found)
        return cls(Counter(body_of(each) for each in listed), Counter(each.id for each in listed))

    @property
    def count(self) -> int:
        return self.bodies.total()

    def lost(self, expected: Iterable[bytes]) -> int:
        """How many of these have not come."""
        return (Counter(expected) - self.bodies).total()

    def surplus(self, expected: Iterable[bytes]) -> int:
        """How many came that should not have, or once too often."""
        return (self.bodies - Counter(expected)).total()


def messages(url: str, address: str) -> list[Message]:
    """Everything a queue holds, taken out of it: nothing has come for a while, and the broker says so.

    The silence alone may be a broker that is slow.
    """
    found = []
    with Connection(url) as connection, Management(url) as management:
        receiver = connection.receiver(address, credit=1000)
        while (taken := receiver.take(1000, timeout_s=SILENCE_S)) or not _is_empty(management, address):
            for encoded in taken:
                message = Message()
                message.decode(encoded)
                found.append(message)
    return found


def _is_empty(management: Management, address: str) -> bool:
    body = management.call("READ", "org.sluice.queue", address).body
    assert isinstance(body, dict)
    return not body["depth_msgs"]


def tally(url: str, address: str) -> Tally:
    """The same, counted."""
    return Tally.of(messages(url, address))


def body_of(message: Message) -> bytes:
    """A data body's bytes, a text's as UTF-8."""
    body = message.body
    if isinstance(body, str):
        return body.encode()
    assert isinstance(body, bytes | memoryview), body
    return bytes(body)


def bodies(count: int, start: int = 0) -> list[bytes]:
    """Different rows, as ``range_of`` in a session makes them."""
    return [b"row-%07d" % number for number in range(start, start + count)]
