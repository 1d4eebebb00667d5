"""A stream: messages stay in the order they came, and each reader looks at them from an offset on.

Those that came last are in memory, the tail; with a log (``StreamSource``) the others are on disk, and are
read for one reader at a time. Offsets begin at 0; an entry's number is its offset and one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from broker import constants
from broker.codec.offsets import chunk, with_offset
from broker.queues.named_readers import NamedReaders
from broker.queues.queue import Entry, Queue, Reader

# Messages of the tail that are on disk, too, leave memory beyond so many bytes.
TAIL_BYTES = 1 << 21
# How many messages a reader looks at before others have their turn.
SCAN = 256
# A reader from disk asks for more once it has fewer.
LOW = 512
# A chunk has as many messages at most, however small they are.
CHUNK_MSGS = 1 << 14

# Where a reader begins.
FIRST, LAST, NEXT, OFFSET, TIME = "first", "last", "next", "offset", "time"


class StreamSource(Protocol):
    """What of a stream can be read from disk (``store.port.StreamLog``)."""

    @property
    def first_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    def limit(self, most_bytes: int, most_count: int, age_ms: int) -> None: ...

    def hold(self, offset: int) -> None: ...


class StreamCursor:
    """Where a reader of a stream begins, and what was read from disk for it.

    ``start`` is FIRST, LAST (message), NEXT, or OFFSET or TIME (ms since the epoch) with a ``value``.
    ``loaded`` has messages in order as (offset, time, bytes); ``loading`` while more was asked for; ``disk``
    is whoever reads them. ``closed``: nobody wants them any more. ``seeks``: TIME has yet to be looked up.
    ``returned`` has entries that were given back, to be sent again before all else; ``owed`` the offsets of
    those that were given back and are not dealt with, sent again or not. Both are in order.

    Where ``chunk_bytes`` is more than 0 the reader is shown chunks of as many bytes, or one message that has
    more, and nothing from the offset ``until`` on. ``in_chunk`` is how many messages the last one had.
    """

    def __init__(self, start: str = NEXT, value: int = 0) -> None:
        self.start = start
        self.value = value
        self.loaded: deque[tuple[int, int, bytes]] = deque()
        self.loading = False
        self.closed = False
        self.seeks = False
        self.disk: Any = None
        self.chunk_bytes = 0
        self.until = 0
        self.in_chunk = 0
        self.returned: list[Entry] = []
        self.owed: list[int] = []


class StreamQueue(Queue):
    """A queue whose messages nobody takes: it has readers, and no consumer but them.

    All below ``visible`` may be read: it is on disk, or will never be. ``ask(reader)`` has what a reader
    wants next read from disk. ``gap`` is true, so that links with credit look for what a disk may have.
    ``total_bytes`` is the size of all messages that came here, as they were sent, and ``counted_sum`` what it
    was before ``counted_offset``, a place in the log that somebody has counted it for; -1 for none. The sum
    before what was there at the start is less than 0.
    ``named`` are the readers whose place is kept. ``id`` tells it from every other stream that has had its
    name, 0 where it isn't known.
    """

    def __init__(self, source: StreamSource | None, next_offset: int, ask: Callable[[Reader], None]) -> None:
        Queue.__init__(self)
        self.id = 0
        self.gap = True
        self.source = source
        self.ask = ask
        self.next_offset = self.visible = self.tail_first = next_offset
        self.next_seq = next_offset + 1
        self.tail_bytes = self.loaded_bytes = 0
        self.total_bytes = self.counted_sum = 0
        self.counted_offset = -1
        self.named = NamedReaders()
        # When the newest message came that was put here; no later one is told to have come before.
        self.latest_ms = 0
        self._held_from = -1
        self._counted = 0
        # The entries of the tail begin at ``_start``; what is before it is None.
        self._tail: list[Entry | None] = []
        self._times: list[int] = []
        # What ``total_bytes`` was before each of them.
        self._sums: list[int] = []
        self._start = 0
        self._most_bytes = self._most_count = self._age_ms = 0

    @property
    def first_offset(self) -> int:
        """The offset of the first message there is; the next one's where there is none."""
        return self.tail_first if self.source is None else min(self.source.first_offset, self.next_offset)

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self.next_offset - self.first_offset

    def limit(self, most_bytes: int, most_count: int, age_ms: int) -> None:
        """Keep so many bytes, so many messages, so long; 0 is no limit."""
        self._most_bytes, self._most_count, self._age_ms = most_bytes, most_count, age_ms
        if self.source is not None:
            self.source.limit(most_bytes, most_count, age_ms)

    def hold(self, offset: int) -> None:
        """Keep everything from an offset on, whatever the limits say; -1 holds nothing."""
        if offset != self._held_from:
            self._held_from = offset
            if self.source is not None:
                self.source.hold(offset)

    def arrive(self, data: bytes, time_ms: int, stored: bool) -> Entry:
        """A message at the end; readers see it at once, or where it is to be ``stored`` once it is."""
        offset = self.next_offset
        entry = Entry(with_offset(data, offset), offset + 1)
        self.next_offset = offset + 1
        self.next_seq = offset + 2
        self._tail.append(entry)
        self._times.append(time_ms)
        self._sums.append(self.total_bytes)
        self.latest_ms = time_ms
        self.tail_bytes += len(entry.data) + constants.HELD_BYTES
        self.total_bytes += len(data)
        if not stored:
            self.visible = self.next_offset
            if self.source is None:
                self._retain(time_ms)
        return entry

    def stored(self, upto: int) -> None:
        """Every message up to this number is on disk."""
        self.visible = max(self.visible, upto)
        self.trim(TAIL_BYTES)

    def trim(self, most_bytes: int) -> None:
        """Let go of what is in the log as well, down to so many bytes."""
        if self.source is None:
            return
        appended = min(self.source.next_offset, self.visible)
        while self.tail_bytes > most_bytes and self.tail_first < appended:
            self._drop_first()
        self._tidy()

    def bytes_from(self, offset: int) -> int:
        """Return the size of the messages from an offset on, as they were sent; -1 where it isn't known.

        Where the log has told it, a message that came with annotations counts up to ``STAMP_BYTES`` less.
        """
        if offset >= self.next_offset:
            return 0
        if offset < self.tail_first:
            if self.source is not None:
                return self.total_bytes - self.counted_sum if offset == self.counted_offset else -1
            # The others are gone.
            offset = self.tail_first
            if offset >= self.next_offset:
                return 0
        return self.total_bytes - self._sums[self._start + offset - self.tail_first]

    def mean_bytes(self) -> int:
        """Return the mean size of the messages in memory, with their places; 0 while there are none."""
        count = self.next_offset - self.tail_first
        return self.tail_bytes // count if count > 0 else 0

    def grow_old(self, now_ms: int) -> None:
        """Let go of what is too old by now, or more than is kept; a log does that by itself."""
        if self.source is None:
            self._retain(now_ms)

    def give_way(self, most_bytes: int) -> None:
        """Without a disk: let go of the oldest, down to so many bytes, though more might be kept."""
        held_from = self._held_from if self._held_from >= 0 else self.next_offset
        while self.tail_bytes > most_bytes and self.tail_first < held_from:
            self._drop_first()
        self._tidy()

    def take_memory(self) -> int:
        """Return by how many bytes memory has grown since the last call; less than 0 where it shrank."""
        held = self.tail_bytes + self.loaded_bytes
        grown = held - self._counted
        self._counted = held
        return grown

    # --- readers

    def open_reader(self, reader: Reader) -> None:
        """It begins where its cursor says; beyond the end it waits for that offset."""
        cursor = reader.run
        if cursor is None:
            cursor = reader.run = StreamCursor(FIRST)
        reader.position = None
        reader.passed = self._begin(cursor)
        self.readers.append(reader)

    def close_reader(self, reader: Reader) -> None:
        """It looks no more."""
        if reader in self.readers:
            self.readers.remove(reader)
        if reader.run is not None:
            reader.run.closed = True
            self._drop_loaded(reader.run)
            reader.run = None

    def look(self, reader: Reader) -> Entry | None:
        """The next message that it wants; None at the end, or while it is read from disk (``waits``)."""
        reader.unfinished = False
        reader.waits = False
        if reader.run is not None and reader.run.returned:
            return self._returned(reader.run)
        if reader.run is not None and reader.run.chunk_bytes > 0:
            return self._chunk(reader, reader.run)
        wanted = reader.wanted
        for _ in range(SCAN):
            entry = self._at(reader)
            if entry is None:
                return None
            reader.passed = entry.seq
            if wanted is None or wanted.matches(entry.data):
                return entry
        reader.unfinished = True
        return None

    def give_back(self, reader: Reader, entry: Entry, failed: bool, most: int) -> bool:
        """A reader gives a message back: it comes again, unless ``failed`` deliveries are ``most`` by now.
        Return whether they are, and it is dealt with; a ``most`` of 0 is no end.

        Readers share entries, so that it is another entry that comes.
        """
        cursor = reader.run
        if cursor is None:
            return False
        count = entry.delivery_count + failed
        offset = entry.seq - 1
        if 0 < most <= count:
            self.deal_with(reader, offset)
            return True
        again = Entry(entry.data, entry.seq)
        again.delivery_count = count
        again.redelivered = True
        at = bisect_left(cursor.owed, offset)
        if at == len(cursor.owed) or cursor.owed[at] != offset:
            cursor.owed.insert(at, offset)
        place = len(cursor.returned)
        while place > 0 and cursor.returned[place - 1].seq > entry.seq:
            place -= 1
        cursor.returned.insert(place, again)
        return False

    def deal_with(self, reader: Reader, offset: int) -> None:
        """A message that may have been given back before is dealt with."""
        owed = reader.run.owed
        at = bisect_left(owed, offset)
        if at < len(owed) and owed[at] == offset:
            del owed[at]

    def first_owed(self, reader: Reader) -> int:
        """Return the first offset that was given back and isn't dealt with, -1 for none."""
        return reader.run.owed[0] if reader.run is not None and reader.run.owed else -1

    def _chunk(self, reader: Reader, cursor: StreamCursor) -> Entry | None:
        """The messages that it stands before as one, whose number is that of the last of them."""
        first = self._at(reader) if reader.passed < cursor.until else None
        if first is None:
            return None
        if first.seq > cursor.until:
            # Retention was faster, and went beyond the end.
            reader.passed = first.seq - 1
            return None
        messages = [first.data]
        size = len(first.data)
        begin = following = first.seq
        end = min(self.visible, cursor.until)
        while following < end and len(messages) < CHUNK_MSGS:
            if following >= self.tail_first:
                entry = self._tail[self._start + following - self.tail_first]
                assert entry is not None, "it is in the tail"
                data = entry.data
            elif cursor.loaded and cursor.loaded[0][0] == following:
                data = cursor.loaded[0][2]
            else:
                break
            if size + len(data) > cursor.chunk_bytes:
                break
            if following < self.tail_first:
                cursor.loaded.popleft()
                self.loaded_bytes -= len(data) + constants.HELD_BYTES
            messages.append(data)
            size += len(data)
            following += 1
        reader.passed = following
        cursor.in_chunk = len(messages)
        if following < self.tail_first:
            self._ask_in_time(reader)
        return Entry(chunk(messages, begin - 1), following)

    def _returned(self, cursor: StreamCursor) -> Entry:
        entry = cursor.returned[0]
        del cursor.returned[0]
        return entry

    def load(self, reader: Reader, messages: list[tuple[int, int, bytes]]) -> None:
        """Take what was read from disk for a reader: (offset, time, bytes) of each, in order."""
        cursor = reader.run
        if cursor is not None:
            cursor.loaded.extend(messages)
            for _, _, data in messages:
                self.loaded_bytes += len(data) + constants.HELD_BYTES

    def found(self, reader: Reader, offset: int, upto: int) -> None:
        """The log, as far as ``upto``, has an offset as the first of the reader's time, or none but the next.

        What it didn't have yet is looked through in memory, or in the log once more.
        """
        cursor = reader.run
        if cursor is None:
            return
        if offset >= self.tail_first:
            at = bisect_left(self._times, cursor.value, self._start + offset - self.tail_first)
            offset = self.tail_first + at - self._start
        elif offset >= upto:
            return
        cursor.seeks = False
        reader.passed = offset

    def has_more(self, reader: Reader) -> bool:
        """Whether there is something to look at."""
        cursor = reader.run
        if reader.passed < self.visible:
            return cursor is None or cursor.chunk_bytes == 0 or reader.passed < cursor.until
        return cursor is not None and (cursor.seeks or bool(cursor.returned))

    def clear(self) -> None:
        """Forget every message: the stream is gone."""
        self._tail, self._times, self._sums, self._start = [], [], [], 0
        self.tail_first = self.visible = self.next_offset
        self.tail_bytes = 0
        for reader in self.readers:
            if reader.run is not None:
                self._drop_loaded(reader.run)

    def __iter__(self) -> Iterator[Entry]:
        """The messages in memory."""
        for entry in self._tail[self._start :]:
            if entry is not None:
                yield entry

    def _at(self, reader: Reader) -> Entry | None:
        """The message that it stands before."""
        cursor = reader.run
        if cursor is None:
            return None
        if cursor.seeks:
            self._ask(reader)
            return None
        offset = reader.passed
        if offset >= self.visible:
            return None
        if offset >= self.tail_first:
            if cursor.disk is not None:
                self._leave_disk(cursor)
            return self._tail[self._start + offset - self.tail_first]
        return self._loaded(reader, offset)

    def _loaded(self, reader: Reader, offset: int) -> Entry | None:
        cursor = reader.run
        loaded = cursor.loaded
        if self.source is None:
            # Retention was faster than the reader.
            reader.passed = self.tail_first
            return self._at(reader)
        found = -1
        while loaded and found < offset:
            found, _, data = loaded.popleft()
            self.loaded_bytes -= len(data) + constants.HELD_BYTES
        if found < offset:
            self._ask(reader)
            return None
        # What it wants next is behind this one.
        reader.passed = found + 1
        self._ask_in_time(reader)
        return Entry(data, found + 1)

    def _ask_in_time(self, reader: Reader) -> None:
        """Have more read from disk before a reader has used up what was."""
        cursor = reader.run
        if len(cursor.loaded) < LOW and not cursor.loading and self.wanted_offset(reader) < self.tail_first:
            self.ask(reader)

    def _leave_disk(self, cursor: StreamCursor) -> None:
        """It has come to what is in memory: let go of what was read for it, and of the file."""
        self._drop_loaded(cursor)
        if not cursor.loading:
            cursor.disk.close()
            cursor.disk = None

    def _drop_loaded(self, cursor: StreamCursor) -> None:
        for _, _, data in cursor.loaded:
            self.loaded_bytes -= len(data) + constants.HELD_BYTES
        cursor.loaded.clear()

    def wanted_offset(self, reader: Reader) -> int:
        """The offset from which on a reader needs messages that it hasn't."""
        loaded = reader.run.loaded
        return int(loaded[len(loaded) - 1][0]) + 1 if loaded else reader.passed

    def _ask(self, reader: Reader) -> None:
        reader.waits = True
        if not reader.run.loading:
            self.ask(reader)

    def _begin(self, cursor: StreamCursor) -> int:
        if cursor.start == NEXT:
            return self.next_offset
        if cursor.start == LAST:
            return max(self.next_offset - 1, self.first_offset)
        if cursor.start == OFFSET:
            return max(cursor.value, self.first_offset)
        if cursor.start == FIRST:
            return self.first_offset
        times = self._times
        if self.source is None or (len(times) > self._start and times[self._start] < cursor.value):
            at = bisect_left(times, cursor.value, self._start)
            return self.tail_first + at - self._start
        cursor.seeks = True
        return self.first_offset

    # --- the tail

    def _retain(self, now_ms: int) -> None:
        """Without a disk: let go of what is older, or more, than is kept; of the latter the newest stays."""
        held_from = self._held_from if self._held_from >= 0 else self.next_offset
        while self.tail_first < held_from and (
            (self._age_ms and self._times[self._start] < now_ms - self._age_ms) or self._has_too_much()
        ):
            self._drop_first()
        self._tidy()

    def _has_too_much(self) -> bool:
        count = self.next_offset - self.tail_first
        return count > 1 and (
            (self._most_bytes > 0 and self.tail_bytes > self._most_bytes) or 0 < self._most_count < count
        )

    def _drop_first(self) -> None:
        entry = self._tail[self._start]
        self._tail[self._start] = None
        self._start += 1
        self.tail_first += 1
        if entry is not None:
            self.tail_bytes -= len(entry.data) + constants.HELD_BYTES

    def _tidy(self) -> None:
        if self._start > 1024 and self._start * 2 > len(self._tail):
            del self._tail[: self._start]
            del self._times[: self._start]
            del self._sums[: self._start]
            self._start = 0
