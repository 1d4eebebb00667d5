"""A queue whose messages leave by their priority: ten levels, each a queue of its own.

A message's level is the priority of its header (AMQP 1.0 §3.2.1): 4 where it says none. It is read from the
message whenever it is needed, so an entry is no larger than in a plain queue, and a level survives wherever
the message does. Within a level all that holds of a plain queue holds: order, the place of what comes back,
what waits for the disk, the gap. Numbers (``Entry.seq``) are given over all levels.

`strict`: the highest level with a ready message is next, once what comes before it from disk is there.
`fair`: in each round every level may send as many messages as ``WEIGHTS`` says, higher levels first; a level
without any ready message waits for nobody. So of any ``2 * sum(WEIGHTS)`` messages that leave at least
``WEIGHTS[level]`` are of each level that had that many ready all the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.codec.message import priority as priority_of
from broker.queues.queue import Entry, Extra, Queue, Reader

LEVELS = 10
# How many messages of each level, 0 to 9, leave in a round of `fair`.
WEIGHTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


class PriorityQueue(Queue):
    """Ten queues under the face of one. Its counters are the sums of theirs.

    ``levels`` are the queues, by priority. ``turns`` has how many messages each may still send in this round
    of a ``fair`` one. ``gap`` is true while any level has one.
    """

    def __init__(self, fair: bool = False) -> None:
        Queue.__init__(self)
        self.levels = [Queue() for _ in range(LEVELS)]
        self.fair = fair
        self.turns = list(WEIGHTS)
        # Bits: the levels with a ready message, and those that may still send in this round.
        self._ready_levels = 0
        self._due_levels = (1 << LEVELS) - 1

    def level_of(self, data: bytes) -> Queue:
        """Return the queue of the level that a message is of."""
        return self.levels[priority_of(data)]

    def append(self, data: bytes, keep: bool = False) -> Entry:
        """A new entry at the end of its level."""
        number = priority_of(data)
        level = self.levels[number]
        ready = level.ready
        level.next_seq = self.next_seq
        self.next_seq += 1
        entry = level.append(data, keep)
        if level.ready > ready:
            self.ready += 1
            self._ready_levels |= 1 << number
        else:
            self.recount()
        return entry

    def stored(self, upto: int) -> None:
        """Every pending entry up to this sequence number is on disk."""
        for level in self.levels:
            if level.pending > 0:
                level.stored(upto)
        self.recount()

    def fill(self, data: bytes, seq: int, near: Entry | None = None) -> Entry:
        """A message that was in the gap of its level is back in memory."""
        level = self.level_of(data)
        entry = level.fill(data, seq, near)
        self.recount()
        return entry

    def acquire(self) -> Entry | None:
        """The next ready entry, acquired; None when there is none."""
        if self._ready_levels == 0:
            return None
        if self.fair:
            if self._ready_levels & self._due_levels == 0:
                self._begin_round()
            number = _highest(self._ready_levels & self._due_levels)
            self._spend_turn(number)
        else:
            number = _highest(self._ready_levels)
            if self.gap and self._reads_above(number):
                return None
        level = self.levels[number]
        entry = level.acquire()
        self.ready -= 1
        self.acquired += 1
        if level.ready == 0:
            self._ready_levels &= ~(1 << number)
        return entry

    def acquire_for(self, consumer: object) -> Entry | None:
        """The next ready entry that wasn't undeliverable to this consumer, acquired."""
        if self.picky == 0:
            return self.acquire()
        for levels in self._passes():
            number = LEVELS - 1
            while number >= 0:
                if levels >> number & 1:
                    level = self.levels[number]
                    if not self.fair and level.ready == 0 and _is_read(level):
                        return None
                    entry = level.acquire_for(consumer)
                    if entry is not None:
                        self._spend_turn(number)
                        self.recount()
                        return entry
                number -= 1
        return None

    def acquire_next(self, reader: Reader) -> Entry | None:
        """The next entry that the reader wants, acquired; higher levels first, within `fair`'s rounds."""
        reader.unfinished = reader.waits = False
        if reader.parts is None:
            return None
        for levels in self._passes():
            number = LEVELS - 1
            while number >= 0:
                if levels >> number & 1:
                    level = self.levels[number]
                    part = reader.parts[number]
                    entry = level.acquire_next(part)
                    if entry is not None:
                        self._spend_turn(number)
                        self.recount()
                        return entry
                    self._tell(reader, part)
                    if reader.unfinished or reader.waits:
                        self.recount()
                        return None
                number -= 1
        self.recount()
        return None

    def look(self, reader: Reader) -> Entry | None:
        """The next entry that a browser wants, left where it is: by level, the highest first."""
        reader.unfinished = reader.waits = False
        if reader.parts is None:
            return None
        number = LEVELS - 1
        while number >= 0:
            level = self.levels[number]
            part = reader.parts[number]
            entry = level.look(part)
            if entry is not None:
                return entry
            self._tell(reader, part)
            if reader.unfinished or reader.waits:
                return None
            number -= 1
        return None

    def open_reader(self, reader: Reader) -> None:
        """It begins at the head of each level."""
        reader.parts = []
        for level in self.levels:
            part = Reader(reader.owner, reader.wanted, reader.browses)
            level.open_reader(part)
            reader.parts.append(part)
        self.readers.append(reader)

    def close_reader(self, reader: Reader) -> None:
        """It looks no more."""
        if reader in self.readers:
            self.readers.remove(reader)
        if reader.parts is not None:
            for level, part in zip(self.levels, reader.parts, strict=True):
                level.close_reader(part)
        reader.parts = None

    def has_more(self, reader: Reader) -> bool:
        """Whether there is something to look at in any level."""
        if reader.parts is None:
            return False
        for level, part in zip(self.levels, reader.parts, strict=True):  # noqa: SIM110
            if level.has_more(part):
                return True
        return False

    def take(self, entry: Entry) -> None:
        """Acquire this very entry."""
        self.level_of(entry.data).take(entry)
        self.recount()

    def release(self, entry: Entry) -> None:
        """Back to ready, in its old place in its level."""
        self.level_of(entry.data).release(entry)
        self.recount()

    def settle(self, entry: Entry) -> None:
        """An acquired entry is done with and leaves."""
        level = self.level_of(entry.data)
        level.settle(entry)
        self.acquired -= 1
        if self.picky > 0:
            self.recount()

    def drop(self, entry: Entry) -> None:
        """An entry nobody holds leaves without having been consumed."""
        self.level_of(entry.data).drop(entry)
        self.recount()

    def forbid(self, entry: Entry, consumer: object) -> None:
        """The entry is undeliverable to this consumer from now on."""
        self.level_of(entry.data).forbid(entry, consumer)
        self.recount()

    def adorn(self, entry: Entry, extra: Extra) -> None:
        """Give a new entry what it has that others haven't."""
        self.level_of(entry.data).adorn(entry, extra)
        self.recount()

    def oldest(self) -> Entry | None:
        """The oldest entry of the lowest level that nobody holds, left where it is."""
        for level in self.levels:
            entry = level.oldest()
            if entry is not None:
                return entry
        return None

    def first_waiting(self) -> int:
        """The lowest number of a message of any level that nobody holds; UNBOUNDED for none."""
        return min(level.first_waiting() for level in self.levels)

    def oldest_below(self, data: bytes) -> Entry | None:
        """The oldest entry of the lowest level, but none of a level above this message's: it goes first."""
        number = 0
        while number <= priority_of(data):
            level = self.levels[number]
            entry = level.oldest()
            if entry is not None:
                return entry
            number += 1
        return None

    def least_ready(self) -> Entry | None:
        """The ready message that is dropped first: the oldest of the lowest level."""
        for level in self.levels:
            if level.cursor is not None:
                return level.cursor
        return None

    def heads(self) -> list[Entry]:
        """The first entry of each level that has any."""
        return [level.head for level in self.levels if level.head is not None]

    def adopt(self, entry: Entry) -> None:
        """Link an entry of another queue at the end of its level, in the state it is in."""
        self.level_of(entry.data).adopt(entry)
        self.recount()

    def clear(self) -> None:
        """Unlink everything."""
        for level in self.levels:
            level.clear()
        self.recount()

    def recount(self) -> None:
        """Set the sums right after something happened to a level, wherever."""
        self.ready = self.acquired = self.picky = self.pending = 0
        self.behind = self.behind_bytes = self.aside = self.aside_bytes = 0
        self.gap = False
        self._ready_levels = 0
        for number, level in enumerate(self.levels):
            self.ready += level.ready
            self.acquired += level.acquired
            self.picky += level.picky
            self.pending += level.pending
            self.behind += level.behind
            self.behind_bytes += level.behind_bytes
            self.aside += level.aside
            self.aside_bytes += level.aside_bytes
            if level.gap:
                self.gap = True
            if level.ready > 0:
                self._ready_levels |= 1 << number

    def __iter__(self) -> Iterator[Entry]:
        for level in reversed(self.levels):
            yield from level

    def _passes(self) -> tuple[int, ...]:
        """The levels to look at, as bits: all of them, or first those that may send in this round."""
        if not self.fair:
            return ((1 << LEVELS) - 1,)
        return (self._due_levels, ((1 << LEVELS) - 1) & ~self._due_levels)

    def _reads_above(self, number: int) -> bool:
        """Whether the next messages of a level above this one are on their way from disk."""
        above = number + 1
        while above < LEVELS:
            level = self.levels[above]
            if level.gap and _is_read(level):
                return True
            above += 1
        return False

    def _spend_turn(self, number: int) -> None:
        """Count a message of a level that leaves, in `fair`."""
        if not self.fair:
            return
        if not self._due_levels >> number & 1:
            self._begin_round()
        self.turns[number] -= 1
        if self.turns[number] == 0:
            self._due_levels &= ~(1 << number)

    def _begin_round(self) -> None:
        self.turns = list(WEIGHTS)
        self._due_levels = (1 << LEVELS) - 1

    def _tell(self, reader: Reader, part: Reader) -> None:
        """Say of the whole reader what holds of its part: it has more to look at, or waits for the disk."""
        reader.unfinished = part.unfinished
        reader.waits = part.waits


def rearrange(source: Queue, target: Queue) -> None:
    """Bring all entries of a queue without a gap into an empty one of another kind, whoever holds them.

    Browsers go on behind what they have seen, as far as that is one place in the new order; else they see
    some messages again rather than miss one. Consumers with a filter look at everything again.
    """
    target.next_seq = source.next_seq
    for entry in sorted(source, key=_number):
        target.adopt(entry)
    for reader in list(source.readers):
        passed = reader.passed
        if reader.parts is not None:
            following = [part.position.seq for part in reader.parts if part.position is not None]
            passed = min(following, default=source.next_seq) - 1
            reader.parts = None
        reader.returned = []
        reader.run = None
        target.open_reader(reader)
        if not reader.browses:
            continue
        if isinstance(target, PriorityQueue) and reader.parts is not None:
            for level, part in zip(target.levels, reader.parts, strict=True):
                _look_on(level, part, passed)
        else:
            _look_on(target, reader, passed)


def _look_on(queue: Queue, reader: Reader, passed: int) -> None:
    """Have a reader go on behind this number."""
    entry = queue.head
    while entry is not None and entry.seq <= passed:
        entry = entry.next
    reader.position = entry
    reader.passed = passed


def _number(entry: Entry) -> int:
    return entry.seq


def _is_read(level: Queue) -> bool:
    """Whether messages of a level come from disk; where that can't be read nobody waits for it."""
    return level.gap and level.disk is not None and level.disk.is_coming()


def _highest(levels: int) -> int:
    """Return the number of the highest bit; there is one."""
    number = LEVELS - 1
    while not levels >> number & 1:
        number -= 1
    return number
