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


class TransactionLimits:
    """Most open transactions of one user, and most bytes in memory of their messages; 0: no bound."""

    def __init__(self) -> None:
        self.most_per_user = 0
        self.most_bytes_per_user = 0


class UserTransactions:
    """The open transactions of one user, on all connections: how many, and what their messages take in
    memory.
    """

    def __init__(self, user: str, limits: TransactionLimits) -> None:
        self.user = user
        self.limits = limits
        self.count = 0
        self.nbytes = 0

    def has_room(self, nbytes: int) -> bool:
        """Return whether they may hold ``nbytes`` more; one message always fits where they hold none."""
        most = self.limits.most_bytes_per_user
        return most == 0 or self.nbytes + nbytes <= most or self.nbytes == 0


class Transaction:
    """All that was done in one transaction, in its order.

    ``fault`` is why it can only be rolled back, in a sentence; empty if nothing is in its way. ``parked``
    has its messages that wait for room outside their nodes, each with its account: it can't commit before
    they have come in. ``unread`` has the links on which messages of it stand behind a large one that is still
    on its way to its file, or that pass messages of it on, likewise. ``parts`` are those that it has in other
    cells, None while it has none. ``nbytes`` is what its messages take in memory, with those that wait
    for room, and ``posted_bytes`` the encoded size of those that have room. ``nodes`` are those it has
    messages of, and ``user`` has all open transactions of its user, None where they aren't counted. Times
    are monotonic nanoseconds, and a ``deadline_ns`` of 0 is never.
    """

    def __init__(self, name: bytes, owner: Owner, now_ns: int, deadline_ns: int, most_bytes: int) -> None:
        self.user: UserTransactions | None = None
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
        self.posted_bytes = 0
        self.nodes: set[Node] = set()
        self._last_node: Node | None = None
        self.parked: dict[object, ProducerCredit] = {}
        self._parked_bytes: dict[object, int] = {}
        self.unread: set[object] = set()
        self.parts: list[object] | None = None

    def has_room(self, size: int) -> bool:
        """Return whether it may hold a message of ``size`` bytes more in memory; one always fits."""
        nbytes = size + constants.HELD_BYTES
        if self.nbytes + nbytes > self.most_bytes and self.nbytes > 0:
            return False
        return self.user is None or self.user.has_room(nbytes)

    def refusal(self, size: int) -> tuple[str, str]:
        """Return the name of the limit that a message of ``size`` bytes more would pass, and a sentence."""
        user = self.user
        if user is None or user.has_room(size + constants.HELD_BYTES):
            name = "max_transaction_size"
            return name, f"limits.{name}: a transaction may hold {self.most_bytes} bytes of messages"
        name, most = "max_transaction_size_per_user", user.limits.most_bytes_per_user
        text = f"limits.{name}: the open transactions of user {user.user} may hold {most} bytes of messages"
        return name, text

    def is_empty(self) -> bool:
        """Return whether nothing was done in it so far."""
        return not (self.has_work() or self.unread or self.fault or self.parts)

    def has_work(self) -> bool:
        """Return whether anything was done in it at nodes of this cell."""
        return bool(self.posts or self.retirements or self.parked)

    def fail(self, fault: str) -> None:
        """Let it only be rolled back, for the first reason that there was."""
        if not self.fault:
            self.fault = fault

    def post(self, node: Node, origin: object, data: bytes, bits: int, size: int, body: object) -> None:
        """Keep a message that has room at its node."""
        if node is not self._last_node:
            self._touch(node)
        self.posts.append(Post(node, origin, data, bits, size, body))
        self.posted_bytes += size
        self._add(len(data) + constants.HELD_BYTES)

    def park(self, message: object, account: ProducerCredit, size: int = 0) -> None:
        """Count a message that waits for room, and takes ``size`` bytes in memory."""
        self.parked[message] = account
        self._parked_bytes[message] = size + constants.HELD_BYTES
        self._add(size + constants.HELD_BYTES)

    def unpark(self, message: object) -> None:
        """Count a message that waits for room no more: it came in, or its sender was told that it didn't."""
        if self.state == OPEN and self.parked.pop(message, None) is not None:
            self._add(-self._parked_bytes.pop(message))
            self._check_in()

    def read(self, link: object) -> None:
        """Count a link on which no message of it is left to be taken in."""
        if self.state == OPEN and link in self.unread:
            self.unread.discard(link)
            self._check_in()

    def _check_in(self) -> None:
        if not self.unread and (self.fault or not self.parked):
            self.owner.came_in(self)

    def lose(self, message: object) -> None:
        """Fail: the link of a message that waited for room is gone, and the message with it."""
        self.fault = "a message was still waiting for room when its link went"
        self.unpark(message)

    def retire(self, node: Node, entry: Entry, outcome: int) -> Retirement:
        """Keep the outcome of a message, which stays acquired."""
        if node is not self._last_node:
            self._touch(node)
        kept = Retirement(node, entry, outcome)
        self.retirements.append(kept)
        return kept

    def _add(self, nbytes: int) -> None:
        """Count so many bytes more, or fewer, in memory."""
        self.nbytes += nbytes
        if self.user is not None:
            self.user.nbytes += nbytes

    def _touch(self, node: Node) -> None:
        """Note that it has a message of this node."""
        self._last_node = node
        self.nodes.add(node)
        if node.transactions is None:
            node.transactions = set()
        node.transactions.add(self)
