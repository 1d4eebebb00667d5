"""Power loss: of what was written, only what was synced is sure to be there, the rest in part.

A broker runs under load with every write and sync of its data directory recorded; now and then it is
killed and started again, so that what an earlier one had left in the page cache counts too. From the
record the directory is rebuilt as a power loss at any moment could have left it (tests/crash/replaying).
Each of these directories must open, hold all that had been accepted, and none of what had been
confirmed. ``-s`` shows the counts.
"""

from __future__ import annotations

import bisect
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import Broker
from tests.crash.contents import contents
from tests.crash.peers import Books, Consumer, Id, Peer, Producer, turn_all
from tests.crash.replaying import RENAME, SYNC, Disk, Event, events
from tests.crash.shim import Shim

# In each of the two recordings.
CUTS = 40
ENOUGH = 300  # syncs, to cut between
# Every so many of them are opened twice.
AGAIN = 4
# What is written before anything can be accepted, and which moments of that are looked at.
FIRST_START = 60
EVERY_THIRD = 3
# As many of the cuts are opened by a broker of its own, and consumed.
SERVED = 5
CONFIG = "store: {journal_file_size: 1MB}\n"
POLICIES = (
    "policies:\n  - {match: '>', durable: true, max_size: 1GB, flow_stop_size: 0, flow_stop_count: 0}\n"
)
# Mapped into memory, or empty: not written as files are, and made anew at a start.
UNRECORDED = ("directory.mdb-lock", "lock")


class Diary(Books):
    """Books that know how much of the record there was when something was told.

    ``at``: as much or more; ``from``: as much or less.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log = Path()
        self.base = 0
        self.size = 0
        self.accepted_at: dict[Id, int] = {}
        self.confirmed_at: dict[Id, int] = {}
        self.received_at: dict[Id, int] = {}
        self.received_from: dict[Id, int] = {}
        self.new: list[tuple[dict[Id, int], Id]] = []

    def note_accepted(self, id_: Id) -> None:
        super().note_accepted(id_)
        self.new.append((self.accepted_at, id_))

    def note_confirmed(self, id_: Id) -> None:
        super().note_confirmed(id_)
        self.new.append((self.confirmed_at, id_))

    def note_received(self, id_: Id, flagged: bool, since_s: float) -> None:
        super().note_received(id_, flagged, since_s)
        self.new.append((self.received_at, id_))
        self.received_from.setdefault(id_, self.size)

    def look(self) -> None:
        """What was told since the last look: the record is at least as long as it was then."""
        self.size = self.base + (self.log.stat().st_size if self.log.exists() else 0)
        for column, id_ in self.new:
            column.setdefault(id_, self.size)
        self.new.clear()

    def wanted(self, told: int) -> set[Id]:
        """Accepted by then, and nobody could have had it yet: it must be there."""
        return {
            id_
            for id_, at in self.accepted_at.items()
            if at <= told and self.received_from.get(id_, told + 1) > told
        }

    def gone(self, told: int) -> set[Id]:
        """Confirmed by then: it must not come again."""
        return {id_ for id_, at in self.confirmed_at.items() if at <= told}

    def sent(self, told: int) -> set[Id]:
        """Received by then: where it comes again, it says so."""
        return {id_ for id_, at in self.received_at.items() if at <= told}


class Recording:
    """Lives of one broker, each killed, and all that was written in them, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = Broker(folder / "broker", POLICIES, CONFIG)
        self.shim = Shim(folder, self.broker.data)
        self.diary = Diary()
        self.producers = [Producer(self.diary, queue, n, filler=400) for n, queue in enumerate("abc")]
        self.consumers = [Consumer(self.diary, "a", second=True, name="a")]
        self.consumers.append(Consumer(self.diary, "c", second=False, name="c"))
        self.happened: list[Event] = []
        self.disk = Disk()
        self.blocks_unrecorded = 0
        self.lives = 0

    def live(self, number: int, seconds: float) -> None:
        """Run a broker for a while under load, and kill it."""
        diary = self.diary
        self.lives += 1
        diary.log = self.folder / f"writes-{number}"
        self.broker.start(env=self.shim.env | {"SHIM_LOG": str(diary.log)})
        peers: list[Peer] = [*self.producers, *self.consumers]
        for peer in peers:
            peer.connect(self.broker.port)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            # The book is kept in small steps, for what is told within one counts as told at its end.
            turn_all(peers, 0.003)
            diary.look()
        self.broker.kill()
        for peer in peers:
            peer.drop()
        diary.look()
        self._follow()

    def _follow(self) -> None:
        """The model does what the broker did; of a write that a kill kept from the record it is told."""
        emptied = str(self.broker.data / "temp")
        for event in events(self.diary.log):
            if not event.path.startswith(emptied):
                event.end += self.diary.base
                self._happen(event)
        self.disk.restart()
        self.diary.base = self.diary.size
        for file in sorted(self.broker.data.iterdir()):
            if file.is_file() and file.name not in UNRECORDED:
                for event in self.disk.unseen(str(file), file.read_bytes()):
                    event.end = self.diary.size
                    self._happen(event)
                    self.blocks_unrecorded += 1
        # An event without effect: from here on syncs that were under way never end.
        self.happened.append(Event(0, "", 0, b"", self.diary.size))

    @property
    def syncs(self) -> int:
        """How many the record has."""
        return sum(event.type == SYNC for event in self.happened)

    @property
    def retired(self) -> bool:
        """Whether a file of the journal has been given up, to be used again."""
        return any(event.type == RENAME and b"spare" in event.payload for event in self.happened)

    def _happen(self, event: Event) -> None:
        self.happened.append(event)
        self.disk.apply(event)


@pytest.fixture(scope="module", params=[0, 2000], ids=["fast", "slow"])
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Under load, with checkpoints on the way; where a sync is slow, several are under way at once."""
    made = Recording(tmp_path_factory.mktemp("power"))
    made.shim.on("slow", str(request.param))
    number = 0
    # Three lives; on a machine with other work more, until enough has been synced to cut between.
    while number < 3 or ((made.syncs <= ENOUGH or not made.retired) and number < 60):
        made.live(number, 1.5)
        number += 1
    return made


def cut_points(happened: list[Event], count: int, dice: random.Random) -> list[int]:
    """All over the record, some in the first moments of each life."""
    starts = [0, *(at + 1 for at, event in enumerate(happened) if event.type == 0)][:-1]
    early = {start + dice.randrange(60) for start in starts for _ in range(4)}
    return sorted(early | set(dice.sample(range(len(happened)), count - len(early))))


def rebuilt(recording: Recording, cuts: list[int], dice: random.Random) -> Iterator[tuple[Path, int]]:
    """The directory as each cut could leave it, and how much had been recorded by then."""
    disk = Disk()
    position = 0
    for cut in cuts:
        while position < cut:
            event = recording.happened[position]
            if event.type == 0:
                disk.restart()
            else:
                disk.apply(event)
            position += 1
        directory = recording.folder / "rebuilt"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for path, left in disk.left(dice).items():
            (directory / Path(path).name).write_bytes(left)
        yield directory, recording.happened[cut - 1].end if cut else 0


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [CUTS, pytest.param(2000, marks=pytest.mark.soak)])
def test_every_moment_of_power_loss_leaves_what_was_accepted(recording: Recording, count: int) -> None:
    happened, diary = recording.happened, recording.diary
    assert recording.syncs > ENOUGH
    assert recording.retired, "no file was retired"
    # All there is was seen being written: nothing goes past the recorder.
    assert recording.blocks_unrecorded <= recording.lives * 20
    seed = 7
    dice = random.Random(seed)
    cuts = cut_points(happened, count, dice)
    lost = back = 0
    for number, (directory, told) in enumerate(rebuilt(recording, cuts, dice)):
        present = contents(directory)
        lost += len(diary.wanted(told) - present)
        back += len(diary.gone(told) & present)
        if number % AGAIN == 0:
            assert contents(directory) == present, "the second start found something else"
    print(
        f"\nseed {seed}, {len(cuts)} cuts of {len(happened):,} writes and syncs:"
        f" {len(diary.accepted_at):,} accepted, lost {lost};"
        f" {len(diary.confirmed_at):,} confirmed, back {back}"
    )
    assert (lost, back) == (0, 0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", [EVERY_THIRD, pytest.param(1, marks=pytest.mark.soak)])
def test_every_moment_of_the_first_start_can_be_started_from(recording: Recording, step: int) -> None:
    """One after the other: the files are made, and none of them is whole yet."""
    cuts = list(range(0, FIRST_START, step))
    for directory, _ in rebuilt(recording, cuts, random.Random(9)):
        assert contents(directory) == contents(directory)


@pytest.mark.timeout(600)
def test_a_broker_goes_on_after_a_power_loss(recording: Recording) -> None:
    dice = random.Random(8)
    ends = [event.end for event in recording.happened]
    first = bisect.bisect(ends, min(recording.diary.accepted_at.values()))
    cuts = sorted(dice.sample(range(first, len(ends)), SERVED))
    came = flagged = 0
    for number, (directory, told) in enumerate(rebuilt(recording, cuts, dice)):
        broker = Broker(recording.folder / f"again-{number}", POLICIES, CONFIG)
        broker.data = directory
        books = consumed(broker, recording.diary.wanted(told))
        sent = recording.diary.sent(told)
        assert not recording.diary.gone(told) & books.received
        assert not sent & books.unflagged, f"{len(sent & books.unflagged)} came again and did not say so"
        came += len(books.received)
        flagged += len(books.received - books.unflagged)
    print(
        f"\n{SERVED} brokers on what was left: {came:,} messages came, {flagged:,} of them flagged, none lost"
    )
    assert came > 0


def consumed(broker: Broker, wanted: set[Id]) -> Books:
    """Everything a broker has, which is at least what is wanted."""
    broker.start()
    books = Books()
    books.accepted = wanted
    consumers: list[Peer] = [Consumer(books, queue, second=True, name=queue) for queue in "abc"]
    for consumer in consumers:
        consumer.connect(broker.port)
    deadline = time.monotonic() + 60
    before = -1
    while books.lost or before != books.deliveries:
        assert time.monotonic() < deadline, str(books)
        before = books.deliveries
        turn_all(consumers, 0.1)
    for consumer in consumers:
        consumer.drop()
    broker.kill()
    return books
