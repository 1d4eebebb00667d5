"""Consumers with filters and browsers over one queue, at random: who sees what, at what cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker import constants
from broker.queues import queue as queue_room
from broker.queues.queue import Entry, Queue, Reader


class Divisible:
    """Wants messages whose number is a multiple of this; counts how many it was asked about."""

    def __init__(self, by: int) -> None:
        self.by = by
        self.asked = 0

    def matches(self, data: bytes) -> bool:
        self.asked += 1
        return int(data) % self.by == 0


class Walk:
    """A queue with three selective readers, a browser, and consumers that take all."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.filters = [Divisible(2), Divisible(3), Divisible(7)]
        self.readers = [Reader(self, each) for each in self.filters]
        self.browser = Reader(self, None, True)
        for reader in (*self.readers, self.browser):
            self.queue.open_reader(reader)
        self.held: list[Entry] = []
        self.seen: list[int] = []
        self.number = 0
        self.came_back = 0

    def do(self, verb: str, number: int) -> None:
        queue = self.queue
        if verb == "append":
            for _ in range(number):
                self.number += 1
                queue.append(b"%d" % self.number)
        elif verb == "take":
            self.take_next(number % 3)
        elif verb == "acquire":
            entry = queue.acquire()
            if entry is not None:
                self.held.append(entry)
        elif verb == "release" and self.held:
            queue.release(self.held.pop(number % len(self.held)))
            self.came_back += 1
        elif verb == "settle" and self.held:
            queue.settle(self.held.pop(number % len(self.held)))
        elif verb == "drop" and queue.cursor is not None:
            queue.drop(queue.cursor)
        elif verb == "browse":
            entry = queue.look(self.browser)
            if entry is not None:
                assert entry.state == constants.READY
                self.seen.append(entry.seq)
        assert self.seen == sorted(set(self.seen)), "a browser sees each message once, in order"

    def take_next(self, which: int) -> None:
        """It gets the first ready message it wants, if it had the turns to look at all there are."""
        reader, by = self.readers[which], self.filters[which].by
        wanted = [e for e in self.queue if e.state == constants.READY and int(e.data) % by == 0]
        entry = self.queue.acquire_next(reader)
        while entry is None and reader.unfinished:
            entry = self.queue.acquire_next(reader)
        if entry is None:
            assert not wanted
            assert not self.queue.has_more(reader)
        else:
            assert entry in wanted
            # What came back is looked at first, in its order; what is new stands behind it.
            assert entry is wanted[0]
            self.held.append(entry)


VERBS = ("append", "take", "take", "acquire", "release", "settle", "drop", "browse", "browse")
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 12)), max_size=120)


@given(STEPS)
def test_each_reader_gets_the_first_it_wants_and_looks_at_each_once(steps: list[tuple[str, int]]) -> None:
    before = queue_room.SCAN
    queue_room.SCAN = 5
    try:
        walk = Walk()
        for step in steps:
            walk.do(*step)
        for each in walk.filters:
            assert each.asked <= walk.number + walk.came_back
    finally:
        queue_room.SCAN = before


def test_one_in_a_million_is_found_without_looking_at_the_others_again() -> None:
    queue = Queue()
    wanted = Divisible(100_000)
    reader = Reader(object(), wanted)
    queue.open_reader(reader)
    for number in range(1, 100_000):
        queue.append(b"%d" % number)
    turns = 0
    while queue.acquire_next(reader) is None and reader.unfinished:
        turns += 1
    assert turns == 99_999 // queue_room.SCAN
    assert wanted.asked == 99_999
    for number in range(100_000, 200_001, 100_000):
        queue.append(b"%d" % number)
        entry = queue.acquire_next(reader)
        assert entry is not None
        assert int(entry.data) == number
    assert wanted.asked == 100_001
