"""Messages on their way from one node to another: dead letters, and what an operator moves.

Such a message obeys the other node's thresholds like everybody's: while there is no room it stays in
the node it comes from, held by us, and goes over when there is. On disk both steps are one group, so
it is never in both places or in neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import codes, message
from broker.flow.ledger import Account, Port
from broker.node import Node
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry

if TYPE_CHECKING:
    from broker.engine import Engine

# Why a message became a dead letter.
REJECTED = "rejected"
EXPIRED = "expired"
UNDELIVERABLE = "max-delivery-count"
OVERFLOW = "overflow"

# How many messages a move holds at a time.
MOVE_WINDOW = 1000


class Waiting:
    """A message that waits for room; ``entry`` is where it still is."""

    def __init__(self, data: bytes, bits: int, entry: Entry) -> None:
        self.data = data
        self.bits = bits
        self.entry = entry


class Passage(Port):
    """The way from one node to another."""

    def __init__(self, engine: Engine, source: Node, target: Node) -> None:
        self.engine = engine
        self.source = source
        self.target = target
        self.passed = 0
        self.ending = False
        self.account: Account = engine.open_producer(target, self, False)

    def send(self, entry: Entry, data: bytes) -> None:
        """Bring an acquired entry over, now or when there is room; ``data`` is what it reads there."""
        body = None if entry.extra is None else entry.extra.body
        bits = self.engine.large.bits_of(data, body)
        size = len(data) + self.engine.large.size_of(bits)
        code = self.engine.arrive(self.target, self.account, data, bits, True)
        if code == codes.PARK:
            self.engine.park(self.target, self.account, Waiting(data, bits, entry), size, True)
        else:
            self._arrived(entry)

    def take_in(self, data: bytes, bits: int) -> int:
        """Bring in a message that is in no node yet: ACCEPTED, STORING, or REFUSED without room.

        ``bits`` are those it came with, which name its file if it is large.
        """
        bits = message.scan(data) | bits >> codes.LARGE_SHIFT << codes.LARGE_SHIFT
        code = self.engine.arrive(self.target, self.account, data, bits, False)
        if code == codes.HOLD:
            return codes.ACCEPTED
        return codes.REFUSED if code == codes.PARK else code

    def end(self) -> None:
        """Nothing more is sent this way; what waits still goes over."""
        self.ending = True
        if not self.account.parked:
            self.close()

    def close(self) -> None:
        """One of the nodes is gone; what waited is forgotten, or is where it was."""
        self.engine.close_producer(self.target, self.account)

    def grant(self, msgs: int) -> None:
        """Nobody is there to hear of credit: the account never asks for any."""

    def revoke(self, msgs: int) -> None:
        """Likewise."""

    def admit(self, parked: object, size: int) -> None:
        """There is room for one that waited."""
        assert isinstance(parked, Waiting)
        self.engine.put(self.target, parked.data, parked.bits)
        self._arrived(parked.entry)

    def refuse(self, parked: object) -> None:
        """What waits here has no deadline."""

    def _arrived(self, entry: Entry) -> None:
        self.passed += 1
        self.engine.passed_on(self.source, entry, self)
        if self.ending and not self.account.parked:
            self.close()


class Mover(Consumer):
    """An operator's move: takes messages as a consumer would and lets them pass until enough have."""

    def __init__(self, engine: Engine, passage: Passage, count: int) -> None:
        Consumer.__init__(self)
        self.engine = engine
        self.passage = passage
        self.unsent = count

    def capacity(self) -> int:
        """How many more it takes now."""
        return min(self.unsent, MOVE_WINDOW - len(self.passage.account.parked))

    def send(self, entry: Entry) -> None:
        """Let a message pass."""
        self.unsent -= 1
        self.passage.send(entry, entry.data)
        if self.unsent == 0:
            self.engine.end_move(self)
