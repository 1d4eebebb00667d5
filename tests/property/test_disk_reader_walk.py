"""Readers over a queue whose middle is on disk, against a list: who sees what, and every message once."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker import constants
from broker.engine import scan as scan_room
from broker.engine import spool as spool_room
from broker.engine.scan import Scans
from broker.engine.spool import Message, Run, Spool, put_back
from broker.queues import queue as queue_room
from broker.queues.queue import Entry, Queue, Reader
from tests.property.test_spool_walk import SlowPager


class Divisible:
    """Wants messages whose number is a multiple of this."""

    def __init__(self, by: int) -> None:
        self.by = by

    def matches(self, data: bytes) -> bool:
        return int(data) % self.by == 0


class Walk:
    """The queue, and ``waiting``: the numbers that nobody holds, in order; ``held`` what somebody does."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.pager = SlowPager()
        self.memory = self.disk = 0
        self.scans = Scans()
        self.spool = Spool(
            self.queue, self.pager, self.loaded, self.on_memory, self.on_disk, scans=self.scans
        )
        self.filters = [Divisible(1), Divisible(2), Divisible(7)]
        self.readers = [Reader(each, each) for each in self.filters]
        self.browsers = [Reader(self, None, True), Reader(self, Divisible(3), True)]
        for reader in (*self.readers, *self.browsers):
            self.queue.open_reader(reader)
        self.seen: list[list[int]] = [[], []]
        self.waiting: list[int] = []
        self.held: list[Entry] = []
        self.unstored: list[int] = []
        # What a browser may have missed: it was held, or came back behind it.
        self.touched: set[int] = set()

    def loaded(self, run: Run, messages: list[Message]) -> None:
        near: Entry | None = None
        for message in messages:
            near = put_back(self.queue, *message, near)

    def on_disk(self, nbytes: int) -> None:
        self.disk += nbytes

    def on_memory(self, nbytes: int) -> None:
        self.memory += nbytes

    def do(self, verb: str, number: int) -> None:
        queue = self.queue
        if verb == "append":
            for _ in range(number):
                keep = number % 3 == 0
                entry = queue.append(b"%d" % queue.next_seq, keep)
                self.waiting.append(entry.seq)
                if keep:
                    self.unstored.append(entry.seq)
        elif verb == "stored" and self.unstored:
            upto = self.unstored[min(number, len(self.unstored) - 1)]
            self.unstored = [seq for seq in self.unstored if seq > upto]
            queue.stored(upto)
        elif verb == "acquire":
            for _ in range(number):
                first = queue.acquire()
                if first is None:
                    break
                assert first.seq == self.waiting[0], "who takes all does so in order"
                self.hold(first)
        elif verb == "take":
            for _ in range(number):
                if not self.take(number % len(self.readers)):
                    break
        elif verb == "browse":
            self.browse(number % len(self.browsers))
        elif verb == "release":
            for _ in range(min(number, len(self.held))):
                entry = self.held.pop(number % len(self.held))
                queue.release(entry)
                self.waiting = sorted([*self.waiting, entry.seq])
        elif verb == "settle":
            for _ in range(min(number, len(self.held))):
                queue.settle(self.held.pop(number % len(self.held)))
        elif verb == "page out":
            self.spool.page_out(number * 40)
        elif verb == "read ahead":
            self.spool.read_ahead()
        elif verb == "tidy":
            self.spool.tidy()
        elif verb == "retry":
            self.spool.retry()
        elif verb == "scan":
            self.scans.read()
        elif verb == "sweep":
            self.scans.sweep()
        elif verb == "reopen":
            reader = self.readers[number % len(self.readers)]
            queue.close_reader(reader)
            queue.open_reader(reader)
        elif verb == "purge":
            self.purge()
        elif verb == "deepen":
            self.do("append", 10 + number)
            self.spool.page_out(10_000)
        elif verb == "serve":
            self.until_quiet()
        elif verb in ("answer", "fail") and self.pager.jobs:
            self.pager.jobs.pop(number % len(self.pager.jobs))(verb == "answer")
        self.check()

    def hold(self, entry: Entry) -> None:
        assert entry.state == constants.ACQUIRED
        assert int(entry.data) == entry.seq
        self.waiting.remove(entry.seq)
        self.touched.add(entry.seq)
        self.held.append(entry)

    def take(self, which: int) -> bool:
        """It gets the first it wants of all that nobody holds, wherever that is."""
        reader, wanted = self.readers[which], self.filters[which]
        entry = self.queue.acquire_next(reader)
        while entry is None and reader.unfinished:
            entry = self.queue.acquire_next(reader)
        pending = {each.seq for each in self.queue if each.state == constants.PENDING}
        there = [seq for seq in self.waiting if seq % wanted.by == 0 and seq not in pending]
        if entry is not None:
            assert entry.seq == there[0]
            self.hold(entry)
            return True
        if not reader.waits and self.queue.aside < queue_room.MOST_ASIDE:
            assert not there
            assert not self.queue.has_more(reader)
        elif reader.waits:
            assert self.queue.has_more(reader)
        return False

    def browse(self, which: int) -> bool:
        reader = self.browsers[which]
        entry = self.queue.look(reader)
        while entry is None and reader.unfinished:
            entry = self.queue.look(reader)
        if entry is None:
            return False
        assert entry.seq in self.waiting
        assert int(entry.data) == entry.seq
        seen = self.seen[which]
        assert not seen or seen[-1] < entry.seq, "each once, in order"
        seen.append(entry.seq)
        return True

    def purge(self) -> None:
        for entry in list(self.queue):
            if entry.state in (constants.READY, constants.BEHIND, constants.ASIDE):
                self.queue.drop(entry)
        self.spool.drop()
        self.waiting = [entry.seq for entry in self.queue if entry.state == constants.PENDING]

    def check(self) -> None:
        queue = self.queue
        states = [entry.state for entry in queue]
        assert states.count(constants.READY) == queue.ready
        assert states.count(constants.ACQUIRED) == queue.acquired == len(self.held)
        assert states.count(constants.BEHIND) == queue.behind
        assert states.count(constants.ASIDE) == queue.aside
        assert states.count(constants.PENDING) == queue.pending
        assert sum(len(entry.data) for entry in queue if entry.state == constants.ASIDE) == queue.aside_bytes
        numbers = [entry.seq for entry in queue]
        assert numbers == sorted(set(numbers))
        there = queue.ready + queue.behind + queue.aside + queue.pending + self.spool.count
        assert there == len(self.waiting)
        assert self.spool.count == sum(run.count for run in self.spool.runs)
        assert self.spool.nbytes == sum(run.nbytes for run in self.spool.runs)
        assert queue.gap == bool(self.spool.runs)
        assert queue.gap_first == (self.spool.runs[0].first if self.spool.runs else 0)
        assert queue.aside == 0 or queue.gap
        blobs = sum(len(run.blob) for run in self.spool.runs if run.blob is not None)
        assert self.memory == blobs + self.scans.nbytes
        assert self.disk == sum(run.disk_bytes for run in self.spool.runs)
        held = [run for run in self.spool.runs if run.scanned is not None]
        assert len(held) <= scan_room.MOST_HELD + scan_room.MOST_READING
        assert len(self.scans.reading) <= scan_room.MOST_READING
        for reader in self.readers:
            assert len(reader.returned) <= queue_room.MOST_RETURNED

    def until_quiet(self) -> None:
        """Whatever is asked of the disk is answered."""
        self.spool.retry()
        self.scans.read()
        while self.pager.jobs:
            self.pager.jobs.pop(0)(True)

    def finish(self) -> None:
        """Once the disk answers, browsers have seen all that stayed, and each reader gets all it wants."""
        if self.unstored:
            self.queue.stored(self.unstored[-1])
        for _ in range(1000):
            self.until_quiet()
            while any([self.browse(0), self.browse(1)]):
                pass
            if not any(self.queue.has_more(each) for each in self.browsers):
                break
        for seen, by in zip(self.seen, (1, 3), strict=True):
            stayed = {seq for seq in self.waiting if seq not in self.touched and seq % by == 0}
            assert stayed <= set(seen)
        for entry in self.held:
            self.queue.settle(entry)
        self.held.clear()
        for which in (2, 1, 0):
            for _ in range(1000):
                self.until_quiet()
                while self.take(which):
                    self.queue.settle(self.held.pop())
                if not any(seq % self.filters[which].by == 0 for seq in self.waiting):
                    break
                # Who takes all makes room where too much is aside.
                if self.queue.aside >= queue_room.MOST_ASIDE:
                    self.spool.read_ahead()
                    self.do("acquire", 0)
        assert not self.waiting
        self.spool.tidy()
        self.scans.sweep()
        self.scans.sweep()
        self.until_quiet()
        assert self.pager.disk == {}
        assert (self.memory, self.disk, self.scans.nbytes) == (0, 0, 0)


VERBS = (
    *(
        "append",
        "append",
        "stored",
        "acquire",
        "take",
        "take",
        "take",
        "browse",
        "browse",
        "release",
        "settle",
    ),
    *("page out", "page out", "read ahead", "scan", "scan", "answer", "answer", "answer", "fail", "retry"),
    *("tidy", "sweep", "reopen", "deepen", "deepen", "serve", "serve", "serve"),
)
STEPS = st.lists(st.tuples(st.sampled_from((*VERBS, "purge")), st.integers(0, 30)), max_size=120)
SMALL = (
    *((spool_room, "READ_AHEAD", 5), (spool_room, "RUN_BYTES", 400), (spool_room, "SPAN", 6)),
    *((queue_room, "SCAN", 3), (queue_room, "MOST_ASIDE", 12), (queue_room, "MOST_RETURNED", 15)),
    *((scan_room, "MOST_READING", 2), (scan_room, "MOST_HELD", 2)),
)


# Messages that a reader is to look at again go to disk before it does.
SENT_BACK = [("append", 28), ("take", 12), ("release", 12), ("page out", 30)]


@given(STEPS)
@example(SENT_BACK)
def test_readers_reach_what_is_on_disk_and_nothing_is_lost_or_seen_twice(
    steps: list[tuple[str, int]],
) -> None:
    walk(steps)


@pytest.mark.parametrize("seed", range(12))
def test_the_same_in_long_walks(seed: int) -> None:
    chance = Random(seed)
    # Each walk has a bent of its own, so that some queues grow deep and others stay empty.
    verbs = [*VERBS, *chance.choices(VERBS, k=20)]
    walk([(chance.choice(verbs), chance.randrange(31)) for _ in range(400)])


def walk(steps: list[tuple[str, int]]) -> None:
    before = [getattr(room, name) for room, name, _ in SMALL]
    for room, name, value in SMALL:
        setattr(room, name, value)
    try:
        walked = Walk()
        for step in steps:
            walked.do(*step)
        walked.finish()
    finally:
        for (room, name, _), value in zip(SMALL, before, strict=True):
            setattr(room, name, value)
