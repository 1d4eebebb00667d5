"""Messages on their way from one node to another: dead letters, and what an operator moves.

Such a message obeys the other node's thresholds like everybody's: while there is no room it stays in
the node it comes from, held by us, and goes over when there is. If the other node goes, it is in its place
again. On disk both steps are one group, so it is never in both places or in neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker import constants
from broker.codec import message
from broker.engine.node import Node
from broker.flow.producer_credit import Port, ProducerCredit
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry

if TYPE_CHECKING:
    from broker.engine.ports import TransferHost

# Why a message became a dead letter.
REJECTED = "rejected"
EXPIRED = "expired"
UNDELIVERABLE = "max-delivery-count"
OVERFLOW = "overflow"
BODY_LOST = "body-lost"

# What ``Changes.emit`` says of a move that ended before all had gone.
MOVE_STOPPED = "move_stopped"

# How many messages a move holds at a time.
MOVE_WINDOW = 1000


class PendingTransfer:
    """A message that waits for room; ``entry`` is where it still is, ``reason`` why it is a dead letter."""

    def __init__(self, data: bytes, bits: int, entry: Entry, reason: str = "") -> None:
        self.data = data
        self.bits = bits
        self.entry = entry
        self.reason = reason


class Transfer(Port):
    """The way from one node to another. What can't go over in the end is put back where it came from."""

    def __init__(self, engine: TransferHost, source: Node, target: Node) -> None:
        self.engine = engine
        self.source = source
        self.target = target
        self.passed = 0
        self.account: ProducerCredit = engine.producers.open(target, self, False)

    def send(self, entry: Entry, data: bytes, reason: str = "") -> None:
        """Bring an acquired entry over, now or when there is room; ``data`` is what it reads there."""
        body = None if entry.extra is None else entry.extra.body
        bits = self.engine.large.bits_of(data, body)
        self.offer(PendingTransfer(data, bits, entry, reason))

    def offer(self, waiting: PendingTransfer) -> None:
        """The same with one that was sent before."""
        size = len(waiting.data) + self.engine.large.size_of(waiting.bits)
        code = constants.REFUSED
        if not self._is_refusing(size):
            code = self.arrive(waiting.data, waiting.bits, True)
        if code == constants.PARK:
            self.waits(waiting.entry)
            self.engine.parking.park(self.target, self.account, waiting, size, True)
        elif code == constants.REFUSED:
            self.refused(waiting, size)
        else:
            self.arrived(waiting.entry)

    def arrive(self, data: bytes, bits: int, settled: bool) -> int:
        """Offer a message to the other node; return the code of ``Intake.arrive``."""
        return self.engine.intake.arrive(self.target, self.account, data, bits, settled)

    def put(self, data: bytes, bits: int) -> int:
        """Put a message for which there is room into the other node; return the code of ``Intake.put``."""
        return self.engine.intake.put(self.target, data, bits)

    def refused(self, waiting: PendingTransfer, size: int) -> None:
        """The other node is at its hard limit."""
        raise NotImplementedError

    def waits(self, entry: Entry) -> None:
        """It stays where it is for now."""

    def arrived(self, entry: Entry) -> None:
        """The other node has it."""
        self.passed += 1
        self.engine.settlement.passed_on(self.source, entry, self)

    def waiting_msgs(self) -> int:
        """How many are held for want of room."""
        return len(self.account.parked)

    def leave(self) -> list[PendingTransfer]:
        """Close the way; what waited, in order, for the caller to see to."""
        waiting: list[PendingTransfer] = []
        while self.account.parked:
            parked, _ = self.account.next_parked()
            assert isinstance(parked, PendingTransfer)
            waiting.append(parked)
        if not self.account.closed:
            self.engine.producers.close(self.target, self.account)
        return waiting

    def close(self, reason: str) -> None:
        """One of the nodes is gone, or takes no more: what waits stays where it is."""
        for waiting in self.leave():
            self.engine.settlement.put_back(self.source, waiting.entry)

    def grant(self, msgs: int) -> None:
        """Nobody is there to hear of credit: the account never asks for any."""

    def revoke(self, msgs: int) -> None:
        """Likewise."""

    def admit(self, parked: object, size: int) -> None:
        """There is room for one that waited."""
        assert isinstance(parked, PendingTransfer)
        refusing = self._is_refusing(size)
        if refusing or self.put(parked.data, parked.bits) == constants.REFUSED:
            self.refused(parked, size)
        else:
            self.arrived(parked.entry)

    def refuse(self, parked: object) -> None:
        """What waits here has no deadline."""

    def _is_refusing(self, size: int) -> bool:
        """Whether the hard limit leaves no room and none is made: asked beforehand, since the node counts
        what it refuses, and this may be offered many times.
        """
        target = self.target
        if target.is_topic or target.hot.overflow not in (
            constants.OVERFLOW_REJECT,
            constants.OVERFLOW_DEAD_LETTER,
        ):
            return False
        gate = target.gate
        return bool(gate.depth_msgs >= target.hard_msgs or gate.depth_bytes + size > target.hard_bytes)


class DeadLetterTransfer(Transfer):
    """The way of a node's dead letters. One that is refused waits too, and is offered again by ``retry``."""

    def __init__(self, engine: TransferHost, source: Node, target: Node) -> None:
        Transfer.__init__(self, engine, source, target)
        self.kept_back: deque[PendingTransfer] = deque()

    def offer(self, waiting: PendingTransfer) -> None:
        """Behind those that were refused before, if there are any."""
        if self.kept_back:
            self.waits(waiting.entry)
            self.kept_back.append(waiting)
        else:
            Transfer.offer(self, waiting)

    def take_in(self, data: bytes, bits: int) -> int:
        """Bring in a message that is in no node yet: ACCEPTED, STORING, or REFUSED without room.

        ``bits`` are those it came with, which name its file if it is large.
        """
        bits = message.scan(data) | bits >> constants.LARGE_SHIFT << constants.LARGE_SHIFT
        code = self.arrive(data, bits, False)
        if code == constants.HOLD:
            return constants.ACCEPTED
        return constants.REFUSED if code == constants.PARK else code

    def arrive(self, data: bytes, bits: int, settled: bool) -> int:
        """Offer a letter to the other node, which keeps it though it had a message of the same id."""
        with self._keeping_repeats():
            return Transfer.arrive(self, data, bits, settled)

    def put(self, data: bytes, bits: int) -> int:
        """Put a letter for which there is room into the other node, whatever its id."""
        with self._keeping_repeats():
            return Transfer.put(self, data, bits)

    @contextmanager
    def _keeping_repeats(self) -> Iterator[None]:
        """Have no message be taken for a duplicate: its original is removed once the letter has arrived."""
        intake = self.engine.intake
        # A letter that overflows becomes one of another node on its way.
        before, intake.keeps_repeats = intake.keeps_repeats, True
        try:
            yield
        finally:
            intake.keeps_repeats = before

    def refused(self, waiting: PendingTransfer, size: int) -> None:
        """It is kept until there is room, unless there never will be for one so large."""
        intake, origin = self.engine.intake, self.account.origin
        is_large = waiting.bits >> constants.LARGE_SHIFT
        if size > self.target.hard_bytes or (
            is_large and intake.too_small_for(self.target, waiting.data, origin) is not None
        ):
            self.engine.settlement.give_up(self.source, waiting.entry)
        else:
            self.waits(waiting.entry)
            self.kept_back.append(waiting)

    def waits(self, entry: Entry) -> None:
        """Where it is handed out again, after a restart too, it was delivered before."""
        if not entry.redelivered:
            entry.redelivered = True
            if entry.durable and self.source.shelf is not None:
                self.source.shelf.update(entry.seq, entry.delivery_count, entry.spared)

    def arrived(self, entry: Entry) -> None:
        """The other node has it."""
        Transfer.arrived(self, entry)
        if self.source.spool is not None and self.source.spool.runs:
            # Nothing is read ahead while many letters wait.
            self.engine.turn.mark_dirty_later(self.source)

    def retry(self) -> None:
        """Offer what was refused again, as far as it is taken."""
        kept, self.kept_back = self.kept_back, deque()
        while kept and not self.kept_back:
            self.offer(kept.popleft())
        self.kept_back.extend(kept)

    def waiting_msgs(self) -> int:
        """How many are held for want of room."""
        return len(self.account.parked) + len(self.kept_back)

    def leave(self) -> list[PendingTransfer]:
        """Close the way; what waited, for the caller to see to."""
        waiting = [*self.kept_back, *Transfer.leave(self)]
        self.kept_back.clear()
        return waiting

    def close(self, reason: str) -> None:
        """One of the nodes is gone: what waits is handed out again, unless it has expired or lost its body;
        that becomes a dead letter anew.
        """
        settlement = self.engine.settlement
        for waiting in self.leave():
            waiting.entry.redelivered = True
            if waiting.reason in (EXPIRED, BODY_LOST):
                settlement.overdue.append((self.source, waiting.entry, waiting.reason))
            else:
                settlement.put_back(self.source, waiting.entry)


class MoveTransfer(Transfer):
    """An operator's move of so many messages. It is over when all have passed, or at the first refusal; and
    when nothing waits any more that was there as it began, for others may take or drop some meanwhile.
    """

    def __init__(self, engine: TransferHost, source: Node, target: Node, count: int) -> None:
        Transfer.__init__(self, engine, source, target)
        self.over = False
        self.last = source.queue.next_seq - 1
        self.mover = MoveConsumer(self, count)

    def arrived(self, entry: Entry) -> None:
        """The other node has it."""
        Transfer.arrived(self, entry)
        if self.mover.unsent > 0:
            # The window has room for one more, which nothing else says to the source.
            self.engine.turn.mark_dirty_later(self.source)
        elif not self.account.parked:
            self._end()

    def is_dry(self) -> bool:
        """Return whether nothing waits in the source that was there when the move began."""
        return self.source.queue.first_waiting() > self.last

    def look(self) -> None:
        """Take no more where nothing is left; the move ends once those that it holds have passed."""
        if self.mover.unsent > 0 and self.is_dry():
            self.mover.stop()
            if not self.account.parked:
                self._end()

    def refused(self, waiting: PendingTransfer, size: int) -> None:
        """Nothing says when there would be room: the rest stays."""
        self.engine.settlement.put_back(self.source, waiting.entry)
        self.close(f"'{self.target.name}' is at its hard limit")

    def close(self, reason: str) -> None:
        """It goes no further."""
        if self.over:
            return
        self._end()
        Transfer.close(self, reason)
        told = {"target": self.target.name, "moved": self.passed, "reason": reason}
        self.engine.changes.emit(MOVE_STOPPED, self.source, told)

    def _end(self) -> None:
        self.over = True
        self.engine.moves.remove(self)
        self.mover.stop()
        if not self.account.parked:
            self.leave()


class MoveConsumer(Consumer):
    """Takes a move's messages as a consumer would, until it has as many as are to go."""

    def __init__(self, move: MoveTransfer, count: int) -> None:
        Consumer.__init__(self)
        self.move = move
        self.unsent = count
        self.joins_groups = False

    def capacity(self) -> int:
        """How many more it takes now, of those that were there when the move began."""
        if self.move.is_dry():
            return 0
        return min(self.unsent, MOVE_WINDOW - self.move.waiting_msgs())

    def send(self, entry: Entry) -> None:
        """Let a message pass, with the annotations that outcomes added to it."""
        self.unsent -= 1
        data = entry.data
        if entry.extra is not None and entry.extra.annotations:
            data = message.with_annotations(data, entry.extra.annotations)
        self.move.send(entry, data)
        if self.unsent == 0:
            self.stop()
        elif self.move.is_dry():
            self.left = 0

    def stop(self) -> None:
        """It takes no more."""
        self.left = self.unsent = 0
        source = self.move.source
        if self in source.consumers:
            self.move.engine.delivery.remove_consumer(source, self)
