"""A local transaction: messages that were posted in it and outcomes that were told, none of which counts yet.

AMQP 1.0 §4.4. A posted message keeps the room at its node that its credit had reserved; a message whose
outcome was told (a *retirement*) stays acquired. ``engine/transactions.py`` commits both, or gives both back.
"""

from __future__ import annotations

from typing import Protocol

from broker import constants
from broker.engine.node import Node
from broker.flow.producer_credit import ProducerCredit
from broker.queues.queue import Entry

# What became of it.
OPEN = "open"
COMMITTED = "committed"
ROLLED_BACK = "rolled back"


class RetiringLink(Protocol):
    """A consumer's link on which a message whose outcome was told is still unsettled."""

    def discharged(self, number: int, committed: bool) -> None:
        """The transaction has ended: the delivery in slot ``number`` is settled if it ``committed``."""


class Owner(Protocol):
    """The link that a transaction was declared on."""

    def came_in(self, transaction: Transaction) -> None:
        """None of its messages waits for room any more."""

    def finish(self, transaction: Transaction) -> None:
        """Discharge it now, which waited for that (``Transactions.finish_later``)."""

    def timed_out(self, transaction: Transaction) -> None:
        """Its time is over: it is to be rolled back."""


class Post:
    """A message that was posted: ``origin`` is its connection, ``body`` the file of a large one."""

    def __init__(self, node: Node, origin: object, data: bytes, bits: int, size: int, body: object) -> None:
        self.node = node
        self.origin = origin
        self.data = data
        self.bits = bits
        self.size = size
        self.body = body


class Retirement:
    """An outcome that was told of a message that a consumer holds.

    ``outcome`` is the code of its descriptor (§3.4); of a `modified` one ``failed`` counts the delivery,
    ``forbids`` is the consumer it is undeliverable to, and ``annotations`` the encoded map to add.
    ``link`` has the delivery unsettled in its slot ``number``; None once it is settled, or its link is gone.
    """

    def __init__(self, node: Node, entry: Entry, outcome: int) -> None:
        self.node = node
        self.entry = entry
        self.outcome = outcome
        self.failed = False
        self.forbids: object = None
        self.annotations = b""
        self.link: RetiringLink | None = None
        self.number = 0


class Transaction:
    """All that was done in one transaction, in its order.

    ``fault`` is why it can only be rolled back, in a sentence; empty if nothing is in its way. ``parked``
    has its messages that wait for room outside their nodes, each with its account: it can't commit before
    they have come in. ``unread`` has the links on which messages of it stand behind a large one that is still
    on its way to its file, likewise. ``nbytes`` is what its messages take in memory. Times are monotonic
    nanoseconds, and a ``deadline_ns`` of 0 is never.
    """

    def __init__(self, name: bytes, owner: Owner, now_ns: int, deadline_ns: int, most_bytes: int) -> None:
        self.name = name
        self.owner = owner
        self.began_ns = now_ns
        self.deadline_ns = deadline_ns
        self.most_bytes = most_bytes
        self.state = OPEN
        self.fault = ""
        self.posts: list[Post] = []
        self.retirements: list[Retirement] = []
        self.nbytes = 0
        self.parked: dict[object, ProducerCredit] = {}
        self.unread: set[object] = set()

    def has_room(self, size: int) -> bool:
        """Return whether it may hold a message of ``size`` bytes more in memory; one always fits."""
        return self.nbytes + size + constants.HELD_BYTES <= self.most_bytes or not self.posts

    def is_empty(self) -> bool:
        """Return whether nothing was done in it so far."""
        return not (self.posts or self.retirements or self.parked or self.unread or self.fault)

    def post(self, node: Node, origin: object, data: bytes, bits: int, size: int, body: object) -> None:
        """Keep a message that has room at its node."""
        self.posts.append(Post(node, origin, data, bits, size, body))
        self.nbytes += len(data) + constants.HELD_BYTES

    def park(self, message: object, account: ProducerCredit) -> None:
        """Count a message that waits for room."""
        self.parked[message] = account

    def unpark(self, message: object) -> None:
        """Count a message that waits for room no more: it came in, or its sender was told that it didn't."""
        if self.state == OPEN and self.parked.pop(message, None) is not None:
            self._check_in()

    def read(self, link: object) -> None:
        """Count a link on which no message of it is left to be taken in."""
        if self.state == OPEN and link in self.unread:
            self.unread.discard(link)
            self._check_in()

    def _check_in(self) -> None:
        if not self.parked and not self.unread:
            self.owner.came_in(self)

    def lose(self, message: object) -> None:
        """Fail: the link of a message that waited for room is gone, and the message with it."""
        self.fault = "a message was still waiting for room when its link went"
        self.unpark(message)

    def retire(self, node: Node, entry: Entry, outcome: int) -> Retirement:
        """Keep the outcome of a message, which stays acquired."""
        kept = Retirement(node, entry, outcome)
        self.retirements.append(kept)
        return kept
