"""A queue whose middle goes to disk and comes back, against a list: order, and every message once."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from broker import constants
from broker.engine import spool as spool_room
from broker.engine.spool import Message, Run, Spool, put_back
from broker.queues.queue import Entry, Queue, Reader

Done = Callable[[object], None]


class SlowPager:
    """A pager that answers when it is told to, or with a fault."""

    def __init__(self) -> None:
        self.disk: dict[int, bytes] = {}
        self.jobs: list[Callable[[bool], None]] = []
        self.places = 0

    @property
    def used_bytes(self) -> int:
        return sum(map(len, self.disk.values()))

    def write(self, blob: bytes, done: Done) -> None:
        self.places += 1
        place = self.places

        def job(works: bool) -> None:
            if works:
                self.disk[place] = blob
            done(place if works else OSError(28, "No space left on device"))

        self.jobs.append(job)

    def read(self, place: object, done: Done) -> None:
        assert isinstance(place, int)
        blob = self.disk[place]
        self.jobs.append(lambda works: done(blob if works else OSError(5, "Input/output error")))

    look = read

    def free(self, place: object) -> None:
        assert isinstance(place, int)
        del self.disk[place]


class Walk:
    """The queue, and ``waiting``: the numbers that must come out, in order; ``held`` what came out."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.pager = SlowPager()
        self.memory = 0
        self.disk = 0
        self.spool = Spool(self.queue, self.pager, self.loaded, self.on_memory, self.on_disk)
        self.reader = Reader(self, None)
        self.queue.open_reader(self.reader)
        self.waiting: list[int] = []
        self.held: list[Entry] = []
        self.unstored: list[int] = []
        # Expired behind the gap, on their way elsewhere.
        self.leaving: list[Entry] = []

    def loaded(self, run: Run, messages: list[Message]) -> None:
        assert [message[0] for message in messages] == sorted(message[0] for message in messages)
        for message in messages:
            put_back(self.queue, *message)

    def on_disk(self, nbytes: int) -> None:
        self.disk += nbytes

    def on_memory(self, nbytes: int) -> None:
        self.memory += nbytes

    def do(self, verb: str, number: int) -> None:
        queue = self.queue
        if verb == "append":
            for _ in range(number):
                keep = number % 3 == 0
                entry = queue.append(b"m" * (number * 7 % 50), keep)
                self.waiting.append(entry.seq)
                if keep:
                    self.unstored.append(entry.seq)
        elif verb == "stored" and self.unstored:
            upto = self.unstored[min(number, len(self.unstored) - 1)]
            self.unstored = [seq for seq in self.unstored if seq > upto]
            queue.stored(upto)
        elif verb == "acquire":
            for _ in range(number):
                taken = queue.acquire()
                if taken is None:
                    break
                assert taken.seq == self.waiting.pop(0)
                self.held.append(taken)
        elif verb == "search":
            # A reader that wants everything gets what a consumer would.
            for _ in range(number):
                taken = queue.acquire_next(self.reader)
                if taken is None:
                    assert self.reader.unfinished or queue.ready == 0
                    break
                assert taken.seq == self.waiting.pop(0)
                self.held.append(taken)
        elif verb == "release" and self.held:
            entry = self.held.pop(number % len(self.held))
            queue.release(entry)
            self.waiting = sorted([*self.waiting, entry.seq])
        elif verb == "settle" and self.held:
            queue.settle(self.held.pop(number % len(self.held)))
        elif verb == "page out":
            self.spool.page_out(number * 40)
        elif verb == "read ahead":
            self.spool.read_ahead()
        elif verb == "retry":
            self.spool.retry()
        elif verb == "expire" and queue.first_behind is not None:
            entry = queue.first_behind
            queue.take(entry)
            self.waiting.remove(entry.seq)
            self.leaving.append(entry)
        elif verb == "expired" and self.leaving:
            queue.settle(self.leaving.pop())
        elif verb == "purge":
            self.purge()
        elif verb in ("answer", "fail") and self.pager.jobs:
            # Reads overtake writes.
            self.pager.jobs.pop(number % len(self.pager.jobs))(verb == "answer")
        self.check()

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
        assert states.count(constants.ACQUIRED) == queue.acquired == len(self.held) + len(self.leaving)
        assert states.count(constants.BEHIND) == queue.behind
        assert states.count(constants.PENDING) == queue.pending
        assert (
            sum(len(entry.data) for entry in queue if entry.state == constants.BEHIND) == queue.behind_bytes
        )
        numbers = [entry.seq for entry in queue]
        assert numbers == sorted(numbers)
        aside = states.count(constants.ASIDE)
        assert queue.ready + queue.behind + queue.pending + aside + self.spool.count == len(self.waiting)
        assert self.spool.count == sum(run.count for run in self.spool.runs)
        assert queue.gap or not self.spool.runs
        blobs = sum(len(run.blob) for run in self.spool.runs if run.blob is not None)
        # A run that the reader looks at is held once more.
        assert self.memory == blobs + self.spool.scans.nbytes
        assert self.disk == sum(run.disk_bytes for run in self.spool.runs)

    def drain(self) -> None:
        """Everything that waits comes out in order once the disk answers."""
        if self.unstored:
            self.queue.stored(self.unstored[-1])
        for _ in range(10_000):
            if not self.waiting:
                break
            self.spool.retry()
            self.spool.read_ahead()
            while self.pager.jobs:
                self.pager.jobs.pop(0)(True)
            entry = self.queue.acquire()
            assert entry is not None, "a message that waits is never reached"
            assert entry.seq == self.waiting.pop(0)
            self.queue.settle(entry)
        while self.pager.jobs:
            self.pager.jobs.pop(0)(True)
        assert not self.waiting
        assert self.pager.disk == {}
        assert self.memory == 0


VERBS = ("append", "append", "stored", "acquire", "release", "settle", "page out", "page out", "read ahead")
FAULTS = ("search", "answer", "answer", "fail", "retry", "expire", "expired", "purge")
STEPS = st.lists(st.tuples(st.sampled_from((*VERBS, *FAULTS)), st.integers(0, 30)), max_size=80)

# One consumer's messages come back while those of another, further on, are still held.
TWO_CONSUMERS = [
    *[("append", 28)] * 2,
    ("acquire", 20),
    *[("release", 0)] * 10,
    ("page out", 30),
    *[("answer", 0)] * 5,
    *[("release", 0)] * 10,
]


# A reader takes messages before their turn, from disk, and gives one back.
BEFORE_ITS_TURN = [("append", 11), ("page out", 1), ("search", 7), ("release", 6)]


@given(STEPS)
@example(TWO_CONSUMERS)
@example(BEFORE_ITS_TURN)
@example([*BEFORE_ITS_TURN, ("purge", 0)])
def test_every_message_comes_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    before = (spool_room.READ_AHEAD, spool_room.RUN_BYTES)
    # Small, so that a short walk crosses every border.
    spool_room.READ_AHEAD, spool_room.RUN_BYTES = 5, 400
    try:
        walk = Walk()
        for step in steps:
            walk.do(*step)
        walk.drain()
    finally:
        spool_room.READ_AHEAD, spool_room.RUN_BYTES = before
