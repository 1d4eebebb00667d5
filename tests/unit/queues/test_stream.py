"""A stream's readers, its tail in memory and what is on disk, by hand."""

from __future__ import annotations

import pytest
from proton import Message, symbol

from broker.codec.offsets import OFFSET
from broker.queues import stream
from broker.queues.queue import Entry, Reader
from broker.queues.stream import FIRST, LAST, NEXT, TIME, StreamCursor, StreamQueue


class Source:
    """A stream's log: what was appended, all or as far as ``next_offset`` says."""

    def __init__(self) -> None:
        self.first_offset = self.next_offset = 0
        self.kept = (0, 0, 0)

    def limit(self, most_bytes: int, most_count: int, age_ms: int) -> None:
        self.kept = (most_bytes, most_count, age_ms)

    def hold(self, offset: int) -> None:
        pass


class World:
    """A stream with a log, and the readers that have asked it."""

    def __init__(self, with_source: bool = True, next_offset: int = 0) -> None:
        self.source = Source() if with_source else None
        self.asked: list[Reader] = []
        self.queue = StreamQueue(self.source, next_offset, self.asked.append)
        self.sent: list[bytes] = []

    def put(self, count: int = 1, time_ms: int = 0, stored: bool = True) -> None:
        for _ in range(count):
            number = len(self.sent)
            data = bytes(Message(body=number).encode())
            entry = self.queue.arrive(data, time_ms, self.source is not None)
            self.sent.append(entry.data)
        if stored and self.source is not None:
            self.queue.stored(len(self.sent))

    def append(self) -> None:
        """The log has all that is stored."""
        assert self.source is not None
        self.source.next_offset = self.queue.visible
        self.queue.trim(stream.TAIL_BYTES)

    def reader(self, start: str, value: int = 0) -> Reader:
        found = Reader(object(), None, True)
        found.run = StreamCursor(start, value)
        self.queue.open_reader(found)
        return found

    def read(self, reader: Reader) -> list[int]:
        found: list[int] = []
        while (entry := self.queue.look(reader)) is not None:
            found.append(offset_of(entry))
        return found

    def answer(self, reader: Reader, count: int) -> None:
        """The disk has read so many messages for it."""
        self.asked.remove(reader)
        first = self.queue.wanted_offset(reader)
        self.queue.load(reader, [(at, 0, self.sent[at]) for at in range(first, first + count)])


def offset_of(entry: Entry) -> int:
    message = Message()
    message.decode(entry.data)
    assert message.annotations is not None
    assert message.annotations[symbol(OFFSET)] == entry.seq - 1 == message.body
    return entry.seq - 1


def test_a_reader_begins_where_it_asks_and_gets_all_that_comes() -> None:
    world = World()
    world.put(10, time_ms=5)
    world.put(10, time_ms=7)
    readers = [world.reader(*start) for start in ((FIRST,), (LAST,), (NEXT,), (stream.OFFSET, 4), (TIME, 7))]
    assert [world.read(each) for each in readers] == [
        *(list(range(20)), [19], [], list(range(4, 20)), list(range(10, 20)))
    ]
    world.put(2, time_ms=8)
    assert [world.read(each) for each in readers] == [[20, 21]] * 5


def test_nobody_sees_what_is_not_stored_yet() -> None:
    world = World()
    world.put(3, stored=False)
    reader = world.reader(FIRST)
    assert (world.read(reader), world.queue.has_more(reader)) == ([], False)
    world.queue.stored(2)
    assert world.queue.has_more(reader)
    assert world.read(reader) == [0, 1]
    world.queue.stored(3)
    assert world.read(reader) == [2]


def test_next_is_behind_what_waits_for_the_disk() -> None:
    world = World()
    world.put(3, stored=False)
    reader = world.reader(NEXT)
    world.queue.stored(3)
    assert world.read(reader) == []
    world.put(1)
    assert world.read(reader) == [3]


def test_an_offset_that_is_not_there_yet_is_waited_for() -> None:
    world = World()
    world.put(2)
    reader = world.reader(stream.OFFSET, 4)
    assert world.read(reader) == []
    world.put(4)
    assert world.read(reader) == [4, 5]


def test_what_left_the_tail_is_read_from_disk_and_joins_it() -> None:
    world = World()
    while world.queue.tail_bytes < 2 * stream.TAIL_BYTES:
        world.put(1000)
    world.append()
    reader = world.reader(FIRST)
    total = world.queue.next_offset
    found: list[int] = []
    for _ in range(total):
        found += world.read(reader)
        if reader not in world.asked:
            break
        world.answer(reader, min(7000, total - world.queue.wanted_offset(reader)))
    assert found == list(range(total))


def test_what_the_log_has_not_appended_stays_in_memory() -> None:
    world = World()
    while world.queue.tail_bytes < 2 * stream.TAIL_BYTES:
        world.put(1000)
    assert world.queue.tail_first == 0
    world.append()
    assert 0 < world.queue.tail_bytes <= stream.TAIL_BYTES
    assert world.queue.tail_first > 0


def test_a_time_before_the_tail_is_looked_up_on_disk() -> None:
    world = World(next_offset=0)
    world.put(5, time_ms=100)
    reader = world.reader(TIME, 50)
    # The tail begins after that time, and the log may have older ones.
    assert world.read(reader) == []
    assert (reader.run.seeks, world.asked) == (True, [reader])
    assert world.queue.has_more(reader)
    reader.run.seeks = False
    reader.passed = 2
    assert world.read(reader) == [2, 3, 4]


def test_a_reader_that_left_wants_nothing_more() -> None:
    world = World()
    world.put(3)
    reader = world.reader(FIRST)
    cursor = reader.run
    world.queue.close_reader(reader)
    assert (world.queue.look(reader), cursor.closed, world.queue.readers) == (None, True, [])


@pytest.mark.parametrize(
    ("limit", "left"), [((0, 5, 0), 5), ((0, 0, 10), 11), ((0, 1, 0), 1), ((1, 0, 0), 1)]
)
def test_without_a_disk_the_oldest_go(limit: tuple[int, int, int], left: int) -> None:
    world = World(with_source=False)
    world.queue.limit(*limit)
    slow = world.reader(FIRST)
    for at in range(30):
        world.put(1, time_ms=at)
    assert (world.queue.count, world.queue.first_offset) == (left, 30 - left)
    assert world.read(slow) == list(range(30 - left, 30))


def test_memory_is_counted_as_it_comes_and_goes() -> None:
    world = World(with_source=False)
    world.queue.limit(0, 3, 0)
    total = 0
    for _ in range(10):
        world.put(1)
        total += world.queue.take_memory()
    assert total == world.queue.tail_bytes > 0
    world.queue.clear()
    assert total + world.queue.take_memory() == 0


class Even:
    """Wants messages with an even number."""

    def matches(self, data: bytes) -> bool:
        message = Message()
        message.decode(data)
        return int(str(message.body)) % 2 == 0


def test_a_filter_passes_over_what_it_does_not_want_and_lets_others_have_their_turn() -> None:
    world = World()
    world.put(stream.SCAN + 10)
    reader = world.reader(FIRST)

    class Last(Even):
        def matches(self, data: bytes) -> bool:
            message = Message()
            message.decode(data)
            return message.body == stream.SCAN + 9

    reader.wanted = Last()
    assert world.queue.look(reader) is None
    assert reader.unfinished
    entry = world.queue.look(reader)
    assert entry is not None
    assert offset_of(entry) == stream.SCAN + 9
    other = world.reader(FIRST)
    other.wanted = Even()
    assert world.read(other) == list(range(0, stream.SCAN + 10, 2))


def test_what_is_given_back_comes_again_first_and_in_order() -> None:
    world = World(with_source=False)
    world.put(6)
    reader = world.reader(FIRST)
    other = world.reader(FIRST)
    entries = [world.queue.look(reader) for _ in range(5)]
    for at in (3, 1, 1, 2):
        entry = entries[at]
        assert entry is not None
        world.queue.give_back(reader, entry, at == 2, 10)
    assert world.queue.first_owed(reader) == 1
    assert world.queue.has_more(reader)
    again = [world.queue.look(reader) for _ in range(5)]
    found = [(each.seq - 1, each.delivery_count, each.redelivered) for each in again if each is not None]
    assert found == [(1, 0, True), (1, 0, True), (2, 1, True), (3, 0, True), (5, 0, False)]
    world.queue.deal_with(reader, 1)
    assert world.queue.first_owed(reader) == 2
    world.queue.deal_with(reader, 2)
    world.queue.deal_with(reader, 2)
    world.queue.deal_with(reader, 3)
    assert world.queue.first_owed(reader) == -1
    # Others get the messages as they came.
    first = world.queue.look(other)
    assert first is not None
    assert (first.seq, first.delivery_count, first.redelivered) == (1, 0, False)


def test_what_fails_too_often_counts_as_dealt_with() -> None:
    world = World(with_source=False)
    world.put(2)
    reader = world.reader(FIRST)
    entry = world.queue.look(reader)
    for count in (1, 2):
        assert entry is not None
        assert not world.queue.give_back(reader, entry, True, 3)
        assert world.queue.first_owed(reader) == 0
        entry = world.queue.look(reader)
        assert entry is not None
        assert (entry.seq, entry.delivery_count) == (1, count)
    assert entry is not None
    assert world.queue.give_back(reader, entry, True, 3)
    assert world.queue.first_owed(reader) == -1
    following = world.queue.look(reader)
    assert following is not None
    assert following.seq == 2
