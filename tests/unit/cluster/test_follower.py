"""A standby over a log in memory: it follows, joins, sets aside, waits and takes over."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from broker.cluster.fold import LogFold
from broker.cluster.follower import CellOwnership, LogFollower
from broker.cluster.lease import OwnerLease, StandbyClock
from broker.cluster.log import LogEntry, LogUnavailable
from broker.cluster.places import SNAPSHOT_OF
from broker.cluster.records import (
    MARK,
    SNAPSHOT_BEGIN,
    SNAPSHOT_END,
    SNAPSHOT_PIECE,
    TAKEOVER,
    decode,
    encode,
)
from broker.cluster.writer import LogWriter
from broker.errors import OperatorError
from broker.store.cache import CacheStore
from broker.store.disk import DiskStore
from broker.store.faults import HalfLoaded, NoRoom
from broker.store.largefiles import LARGE, LargeFile, body_key, receive_body
from broker.store.port import DURABLE, LARGE_FILE, LARGE_NOTE
from broker.store.records import crc32c
from broker.store.replicated import ReplicatedStore
from broker.store.shortage import Shortage
from tests.cluster.memory_log import MemoryEngine, MemoryLog
from tests.store.replicas import read_directory

CELL = 5
FILE_BYTES = 1 << 20
MS = 1_000_000
# The owner's lease in these tests; a standby that is to wait has a clock of an hour.
TTL_NS, MARK_NS = 3_600_000 * MS, 3_600_000 * MS
ABOUT_A, ABOUT_B = b'{"member": "a"}', b'{"member": "b"}'


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def claim(engine: MemoryEngine, fold: LogFold, about: bytes = ABOUT_A) -> None:
    """Have the next epoch begin in the log."""
    data, _ = encode(TAKEOVER, CELL, fold.epoch + 1, fold.group, fold.digest, about)
    engine.records.append(data)
    fold.feed(engine.last, data)


class Owner:
    """The owner of a cell, whose groups hold a message each."""

    def __init__(self, engine: MemoryEngine, directory: Path, fold: LogFold | None = None) -> None:
        if fold is None:
            fold = LogFold(CELL)
            claim(engine, fold)
        now_ns = time.monotonic_ns()
        lease = OwnerLease(TTL_NS, MS, MARK_NS, now_ns, now_ns)
        self.writer = LogWriter(MemoryLog(engine), fold, lease, ABOUT_A, lambda: self.store.ring())
        self.store = ReplicatedStore.own(directory, self.writer, fold.epoch, file_bytes=FILE_BYTES)
        self.writer.start()
        self.queue = self.store.open_log("q", b"{}")
        self.seq = 0

    def put(self, count: int = 1) -> None:
        """Store so many messages, each in a group, and wait for the log."""
        for _ in range(count):
            self.seq += 1
            self.queue.append(self.seq, DURABLE, 0, 0, b"message %d" % self.seq)
            self.store.seal()
        until(lambda: self.store.attend() == self.store.group - 1, "the log's answer")

    def stop(self) -> None:
        """Let go of both."""
        self.store.close()
        self.writer.stop()


class Standby:
    """A follower on a thread of its own."""

    def __init__(
        self,
        engine: MemoryEngine,
        directory: Path,
        ttl_ms: int = 3_600_000,
        grace_ms: int = 1500,
        reaches_owner: Callable[[], bool] = lambda: True,
        log: MemoryLog | None = None,
        alive: Callable[[], None] = lambda: None,
        member: str = "b",
    ) -> None:
        self.owners: list[bytes] = []
        self.result: CellOwnership | OperatorError | None = None
        clock = StandbyClock(ttl_ms * MS, 0, time.monotonic_ns(), grace_ms * MS)
        self.follower = LogFollower(
            *(log or MemoryLog(engine), CELL, member, directory, clock),
            *(b'{"member": "%s"}' % member.encode(), self.owners.append, FILE_BYTES),
            reaches_owner=reaches_owner,
            alive=alive,
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.result = self.follower.run()
        except OperatorError as fault:
            self.result = fault

    def wait(self) -> CellOwnership | OperatorError | None:
        """Wait until it is done."""
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.result

    def stop(self) -> None:
        """Have it end."""
        self.follower.stop()
        self.wait()


class SlowLog(MemoryLog):
    """A log that is read a record at a time, or not at all while ``is_held``.

    ``seen`` has what the standby says of itself at each read.
    """

    def __init__(self, engine: MemoryEngine) -> None:
        super().__init__(engine)
        self.seen: list[tuple[int, int]] = []
        self.follower: LogFollower | None = None
        self.is_held = False

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        if self.follower is not None:
            self.seen.append((self.follower.at.position, self.follower.at.last_position))
        return [] if self.is_held else super().read(position, most_bytes)[:1]


class CountedLog(MemoryLog):
    """A log that is read a record at a time, and notes how often ``tell`` was called before each read."""

    def __init__(self, engine: MemoryEngine) -> None:
        super().__init__(engine)
        self.signs = 0
        self.told_before: list[int] = []

    def tell(self) -> None:
        self.signs += 1

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        self.told_before.append(self.signs)
        return super().read(position, most_bytes)[:1]


class StaleLog(MemoryLog):
    """A log whose replica has the bodies of large messages only when it is asked for the third time."""

    def __init__(self, engine: MemoryEngine) -> None:
        super().__init__(engine)
        self.left = 2

    def get_body(self, key: str) -> Iterator[bytes]:
        if self.left:
            self.left -= 1
            return iter(())
        return super().get_body(key)


class PatientLog(MemoryLog):
    """A log that begins to give a body, and the rest once ``rest`` is set."""

    def __init__(self, engine: MemoryEngine) -> None:
        super().__init__(engine)
        self.begun = threading.Event()
        self.rest = threading.Event()

    def get_body(self, key: str) -> Iterator[bytes]:
        for piece in super().get_body(key):
            self.begun.set()
            assert self.rest.wait(30)
            yield piece


class UnsteadyLog(MemoryLog):
    """A log that once doesn't answer, when it is read from a snapshot's beginning on for that many times."""

    def __init__(self, engine: MemoryEngine, times: int) -> None:
        super().__init__(engine)
        self.left = times

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        found = super().read(position, most_bytes)
        if found and decode(position, found[0].data).kind == SNAPSHOT_BEGIN:
            self.left -= 1
            if self.left == 0:
                raise LogUnavailable("late")
        return found


@contextmanager
def following(engine: MemoryEngine, directory: Path, log: MemoryLog | None = None) -> Iterator[Standby]:
    """A standby that has applied all there is."""
    standby = Standby(engine, directory, log=log)
    try:
        until(lambda: standby.follower.at.position == engine.last, "the standby to be level")
        yield standby
    finally:
        standby.stop()


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def owner(engine: MemoryEngine, tmp_path: Path) -> Iterator[Owner]:
    made = Owner(engine, tmp_path / "a")
    yield made
    made.stop()


def applied(directory: Path) -> tuple[int, int]:
    """Return the epoch and group that a directory has applied."""
    store = CacheStore.open(directory, file_bytes=FILE_BYTES)
    try:
        return store.applied
    finally:
        store.close()


def test_a_standby_applies_each_group_and_knows_the_owner(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(3)
    with following(engine, tmp_path / "b") as standby:
        assert standby.owners == [ABOUT_A]
        owner.put(2)
        until(lambda: standby.follower.at.group == 6 - 1, "five groups")
        assert standby.follower.at.epoch == 1
    assert applied(tmp_path / "b") == (1, 5)


def test_a_standby_that_comes_back_goes_on_where_it_was(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(5)
    with following(engine, tmp_path / "b"):
        pass
    owner.put(70)
    with following(engine, tmp_path / "b"):
        pass
    assert applied(tmp_path / "b") == (1, 75)
    assert not list(tmp_path.glob("b.aside"))


def test_a_silent_log_is_taken_over_once_and_by_the_epoch_that_follows(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(2)
    standby = Standby(engine, tmp_path / "b", ttl_ms=50)
    found = standby.wait()
    assert isinstance(found, CellOwnership)
    assert (found.fold.epoch, found.fold.group, found.fold.position) == (2, 2, engine.last)
    owner.seq += 1
    owner.queue.append(owner.seq, DURABLE, 0, 0, b"too late")
    owner.store.seal()
    until(lambda: owner.writer.fenced == 2, "the fence")
    assert owner.writer.acked_group == 2


def test_a_claim_whose_answer_was_lost_is_found_in_the_log(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(1)
    engine.lose = 1
    found = Standby(engine, tmp_path / "b", ttl_ms=50).wait()
    assert isinstance(found, CellOwnership)
    assert (found.fold.epoch, found.fold.position) == (2, engine.last)


def test_nobody_takes_over_while_the_engine_is_down(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(1)
    engine.down = True
    standby = Standby(engine, tmp_path / "b", ttl_ms=50)
    until(lambda: standby.follower.at.reachable is False, "a word")
    standby.thread.join(0.3)
    assert standby.thread.is_alive()
    assert engine.last == 2
    engine.down = False
    assert isinstance(standby.wait(), CellOwnership)


@pytest.mark.parametrize("answers", [[False], [True, False], [False, True, False]])
def test_an_owner_that_was_reached_while_the_engine_was_down_has_time_to_speak_and_one_that_is_gone_none(
    engine: MemoryEngine, owner: Owner, tmp_path: Path, answers: list[bool]
) -> None:
    owner.put(1)
    asked: list[bool] = []

    def reaches_owner() -> bool:
        asked.append(answers[min(len(asked), len(answers) - 1)])
        return asked[-1]

    standby = Standby(engine, tmp_path / "b", 500, 3_600_000, reaches_owner)
    until(lambda: standby.follower.at.position == engine.last, "the standby to follow")
    engine.down = True
    until(lambda: True in asked or len(asked) > 2, "looks")
    engine.down = False
    if True in answers:
        standby.thread.join(1)
        assert standby.thread.is_alive()
        standby.stop()
        assert standby.wait() is None
    else:
        assert isinstance(standby.wait(), CellOwnership)


def test_that_an_owner_was_not_reached_is_forgotten_with_the_outage(
    engine: MemoryEngine, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.put(1)
    answered: list[bool] = []
    tell = StandbyClock.engine_answered

    def engine_answered(self: StandbyClock, now_ns: int, answers: bool, owner_is_gone: bool = False) -> None:
        if answers:
            answered.append(owner_is_gone)
        tell(self, now_ns, answers, owner_is_gone)

    monkeypatch.setattr(StandbyClock, "engine_answered", engine_answered)
    looks: list[None] = []

    def reaches_owner() -> bool:
        looks.append(None)
        return False

    # The lease is long: nothing is taken over.
    standby = Standby(engine, tmp_path / "b", reaches_owner=reaches_owner)
    until(lambda: standby.follower.at.position == engine.last, "the standby to follow")
    engine.down = True
    until(lambda: len(looks) > 1, "looks")
    engine.down = False
    until(lambda: True in answered and len(answered) - answered.index(True) > 2, "further answers")
    standby.stop()
    assert answered.count(True) == 1


def test_a_hand_over_to_this_member_is_taken_at_once(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(1)
    with following(engine, tmp_path / "b") as standby:
        assert owner.writer.hand_over(b"b", 10)
        found = standby.wait()
        assert isinstance(found, CellOwnership)
        assert standby.owners == [ABOUT_A, b""]


class LaggingLog(MemoryLog):
    """A log whose server has records up to a position only, until it has caught up."""

    def __init__(self, engine: MemoryEngine, upto: int) -> None:
        super().__init__(engine)
        self.upto = upto

    def last(self) -> int:
        return min(super().last(), self.upto)

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        return [each for each in super().read(position, most_bytes) if each.position <= self.upto]


def test_a_directory_that_has_more_than_the_log_shows_is_kept_until_that_has_caught_up(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(4)
    behind = engine.last
    owner.put(16)
    with following(engine, tmp_path / "b"):
        pass
    lagging = LaggingLog(engine, behind)
    standby = Standby(engine, tmp_path / "b", log=lagging)
    fault = "the log ends with group 4, and this member has group 20 of it"
    until(lambda: fault in standby.follower.at.fault, "it to say so")
    lagging.upto = engine.last
    until(lambda: standby.follower.at.position == engine.last, "the standby to be level")
    assert standby.follower.at.fault == ""
    standby.stop()
    assert applied(tmp_path / "b") == (1, 20)
    assert not (tmp_path / "b.aside").exists()


def test_a_directory_that_followed_a_longer_log_waits_and_is_kept(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(4)
    other = MemoryEngine()
    foreign = Owner(other, tmp_path / "foreign")
    foreign.put(20)
    with following(other, tmp_path / "b"):
        pass
    foreign.stop()
    standby = Standby(engine, tmp_path / "b")
    until(lambda: "start this member with an empty directory" in standby.follower.at.fault, "it to say so")
    standby.stop()
    assert applied(tmp_path / "b") == (1, 20)
    assert not (tmp_path / "b.aside").exists()


def test_an_empty_log_is_refused_by_a_member_that_has_followed_one(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(4)
    with following(engine, tmp_path / "b"):
        pass
    found = Standby(MemoryEngine(), tmp_path / "b").wait()
    assert isinstance(found, OperatorError)
    assert "it has followed a log up to group 4, and the log is empty now" in str(found)


def test_a_broker_s_own_data_joins_no_log_that_is_there(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    fill_alone(tmp_path / "b")
    found = Standby(engine, tmp_path / "b").wait()
    assert isinstance(found, OperatorError)
    assert "it holds a broker's data, and the cell has a log already" in str(found)


def fill_alone(directory: Path) -> None:
    """Have a directory hold two messages of a single broker's."""
    store = DiskStore.open(directory, file_bytes=FILE_BYTES)
    queue = store.open_log("q", b"{}")
    for number in (1, 2):
        queue.append(number, DURABLE, 0, 0, b"of before")
    store.seal()
    until(lambda: store.attend() == store.group - 1, "the disk")
    store.close()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_log_that_begins_with_a_directory_gives_all_of_it_to_a_standby(
    engine: MemoryEngine, tmp_path: Path, at_once: bool
) -> None:
    """Also to one that was there before the snapshot was: it has read past the place where it stands."""
    fill_alone(tmp_path / "a")
    fold = LogFold(CELL)
    claim(engine, fold)
    standby = Standby(engine, tmp_path / "b") if at_once else None
    if standby is not None:
        until(lambda: standby.follower.at.position == 1, "the take-over")
    begin_with(tmp_path / "a", engine, fold)
    late = standby or Standby(engine, tmp_path / "b")
    until(lambda: late.follower.at.position == engine.last, "the standby to be level")
    late.stop()
    assert applied(tmp_path / "a") == applied(tmp_path / "b") == (1, 0)
    assert names(tmp_path / "b") == {"q": [1, 2]}


def test_a_log_that_ceases_to_answer_within_its_first_snapshot_leaves_no_standby_with_half_of_it(
    engine: MemoryEngine, tmp_path: Path
) -> None:
    fill_alone(tmp_path / "a")
    fold = LogFold(CELL)
    claim(engine, fold)
    # The standby reads it as it comes, and again for its pieces.
    unsteady = UnsteadyLog(engine, times=2)
    standby = Standby(engine, tmp_path / "b", log=unsteady)
    until(lambda: standby.follower.at.position == 1, "the take-over")
    begin_with(tmp_path / "a", engine, fold)
    until(lambda: standby.follower.at.position == engine.last, "the standby to be level")
    standby.stop()
    assert applied(tmp_path / "b") == (1, 0)
    assert names(tmp_path / "b") == {"q": [1, 2]}
    assert unsteady.left < 0


@contextmanager
def full_disk() -> Iterator[None]:
    """A disk that has no room for a snapshot that is loaded, and a store that waits for nothing else long."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("broker.store.cache.PATIENCE_S", 0.1)
        patched.setattr("broker.store.cache.LOAD_BEHIND_BYTES", -1)
        patched.setattr(Shortage, "judge", lambda self, journal_full: "No space left on device")
        yield


def test_a_member_that_joins_with_a_full_disk_says_so_and_goes_on_once_there_is_room(
    engine: MemoryEngine, tmp_path: Path
) -> None:
    fill_alone(tmp_path / "a")
    fold = LogFold(CELL)
    claim(engine, fold)
    begin_with(tmp_path / "a", engine, fold)
    (tmp_path / "b.aside").mkdir()
    (tmp_path / "b.aside" / "journal").touch()
    signs: list[int] = []
    with full_disk():
        standby = Standby(engine, tmp_path / "b", alive=lambda: signs.append(1))
        until(lambda: "No space left" in standby.follower.at.fault, "a word")
        before = len(signs)
        until(lambda: len(signs) > before + 2 or standby.result is not None, "signs of life")
        assert standby.thread.is_alive()
        # A copy of what the log has gives its room to another.
        assert not (tmp_path / "b.aside").exists()
    until(lambda: standby.follower.at.position == engine.last, "the standby to be level")
    assert standby.follower.at.fault == ""
    standby.stop()
    assert names(tmp_path / "b") == {"q": [1, 2]}


def test_a_snapshot_that_was_loaded_in_part_is_deleted(engine: MemoryEngine, tmp_path: Path) -> None:
    fill_alone(tmp_path / "a")
    fold = LogFold(CELL)
    claim(engine, fold)
    begin_with(tmp_path / "a", engine, fold)
    with full_disk():
        standby = Standby(engine, tmp_path / "b")
        until(lambda: standby.follower.at.fault, "a word")
        standby.stop()
    assert standby.result is None
    with pytest.raises(HalfLoaded):
        CacheStore.open(tmp_path / "b", file_bytes=FILE_BYTES)
    with following(engine, tmp_path / "b"):
        pass
    assert names(tmp_path / "b") == {"q": [1, 2]}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("stops", [False, True])
def test_a_member_whose_directory_can_t_be_opened_for_lack_of_room_waits_for_some(
    engine: MemoryEngine, owner: Owner, tmp_path: Path, stops: bool
) -> None:
    owner.put()
    with pytest.MonkeyPatch.context() as patched:

        def no_room(*given: object, **named: object) -> CacheStore:
            raise NoRoom("no room")

        patched.setattr(CacheStore, "open", no_room)
        standby = Standby(engine, tmp_path / "b")
        until(lambda: standby.follower.at.fault == "no room", "a word")
        if stops:
            standby.stop()
            assert standby.result is None
            return
    until(lambda: standby.follower.at.position == engine.last, "the standby to be level")
    assert standby.follower.at.fault == ""
    standby.stop()


def begin_with(directory: Path, engine: MemoryEngine, fold: LogFold) -> None:
    """Append a snapshot of a directory as the beginning of a log."""
    digest = fold.digest
    beginning = CacheStore.open(directory, file_bytes=FILE_BYTES)
    pieces = [
        (SNAPSHOT_BEGIN, SNAPSHOT_OF.pack(1, 0)),
        *((SNAPSHOT_PIECE, blob) for blob in beginning.live_groups()),
        (SNAPSHOT_END, b""),
    ]
    for kind, payload in pieces:
        data, digest = encode(kind, CELL, 1, 0, digest, payload)
        engine.records.append(data)
        fold.feed(engine.last, data)
    beginning.begin_log(1)
    beginning.close()


def names(directory: Path) -> dict[str, list[int]]:
    """Return the numbers of each queue's messages."""
    _, (shelves, _) = read_directory(directory)
    return {name: [each[0] for each in held] for name, _, _, held in shelves.values()}


def test_a_damaged_record_stops_a_standby_with_its_position(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    for _ in range(3):
        owner.put()
    engine.records[-1] = engine.records[-1][:-1] + b"?"
    standby = Standby(engine, tmp_path / "b", ttl_ms=50)
    until(lambda: standby.follower.at.fault, "a word")
    assert f"the log is damaged at position {engine.last}" in standby.follower.at.fault
    standby.stop()
    assert standby.result is None, "it hasn't taken over"


def test_a_standby_refuses_groups_of_a_newer_broker_in_words_and_applies_none(
    engine: MemoryEngine, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.put(3)
    said = f"position {engine.last + 1}: a record of version 3 and kind 1 is of a newer broker"
    with following(engine, tmp_path / "b") as standby:
        before = owner.store.log_group(owner.store.group - 1)
        monkeypatch.setattr("broker.cluster.records.VERSION", 3)
        owner.put()
        monkeypatch.undo()
        until(lambda: said in standby.follower.at.fault, "a word")
    assert standby.result is None
    assert applied(tmp_path / "b")[1] == before
    # One that begins ends with the same.
    assert said in str(Standby(engine, tmp_path / "b").wait())
    assert applied(tmp_path / "b")[1] == before


def test_marks_say_who_owns_the_cell_to_one_that_joins_late(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    owner.put(1)
    owner.writer.append(MARK, 1, ABOUT_A)
    until(lambda: engine.last == 3, "the mark")
    with following(engine, tmp_path / "b") as standby:
        assert standby.owners == [ABOUT_A]


def test_one_that_joins_says_who_owns_the_cell_and_not_who_did_before(
    engine: MemoryEngine, tmp_path: Path
) -> None:
    fold = LogFold(CELL)
    for about in (b'{"member": "c"}', ABOUT_A, b'{"member": "d"}'):
        claim(engine, fold, about)
    log = SlowLog(engine)
    with following(engine, tmp_path / "b", log) as standby:
        until(lambda: standby.owners, "a word of the owner")
        assert standby.owners == [b'{"member": "d"}']


def test_a_standby_that_waits_for_its_disk_hears_of_the_next_owner(
    engine: MemoryEngine, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.put()
    with following(engine, tmp_path / "b") as standby:
        before = standby.follower.at.position
        # As if its disk took nothing.
        monkeypatch.setattr("broker.cluster.follower.BEHIND_BYTES", -1)
        fold = LogFold(CELL)
        for position, data in enumerate(engine.records, 1):
            fold.feed(position, data)
        claim(engine, fold, b'{"member": "c"}')
        until(lambda: standby.owners[-1:] == [b'{"member": "c"}'], "the owner's word")
        assert standby.follower.at.position == before
        monkeypatch.undo()
        until(lambda: standby.follower.at.position == engine.last, "the standby to go on")


def test_a_directory_that_lacks_what_the_log_had_takes_nothing_over(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    """It was away while groups came, and the log was trimmed behind them."""
    owner.put(5)
    with following(engine, tmp_path / "b"):
        pass
    for _ in range(20):
        owner.put()
    for _ in range(3):
        owner.writer.append(MARK, -1, ABOUT_A)
    until(lambda: owner.writer.behind_records == 0 and owner.writer.acked_group == 25, "the marks")
    owner.writer.append(MARK, -1, ABOUT_A, (marked := threading.Event()).set)
    assert marked.wait(30)
    MemoryLog(engine).trim(engine.last)
    standby = Standby(engine, tmp_path / "b", ttl_ms=50)
    found = standby.wait()
    # No snapshot was written here that it could begin with.
    assert isinstance(found, OperatorError)
    assert "neither its beginning nor a snapshot" in str(found)


def test_a_standby_that_still_reads_says_how_far_it_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.cluster.follower.ASK_NS", 0)
    engine = MemoryEngine()
    owner = Owner(engine, tmp_path / "a")
    standby_log = SlowLog(engine)
    clock = StandbyClock(3_600_000 * MS, 0, time.monotonic_ns())
    follower = LogFollower(
        *(standby_log, CELL, "b", tmp_path / "b", clock, ABOUT_B, lambda about: None, FILE_BYTES)
    )
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        until(lambda: follower.at.position == engine.last, "the standby to be level")
        standby_log.is_held = True
        for _ in range(10):
            owner.put()
        standby_log.follower = follower
        # What it was told while it could read nothing is no news.
        follower.at.last_position = follower.at.position
        standby_log.is_held = False
        until(lambda: follower.at.position == engine.last, "the standby to be level again")
    finally:
        follower.stop()
        thread.join(30)
        owner.stop()
    begun = standby_log.seen[0][0]
    assert any(begun < position < last for position, last in standby_log.seen)


def test_a_member_that_joins_is_behind_since_it_began(engine: MemoryEngine, tmp_path: Path) -> None:
    before_ns = time.monotonic_ns()
    engine.down = True
    standby = Standby(engine, tmp_path / "b")
    assert before_ns <= standby.follower.at.level_ns <= time.monotonic_ns()
    standby.stop()


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), LogUnavailable("late")])
def test_a_standby_waits_until_it_can_have_a_large_message_and_misses_no_group(
    engine: MemoryEngine, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    tries = []

    def receive(file: LargeFile, pieces: Iterable[bytes]) -> None:
        tries.append(file.number)
        if len(tries) < 3:
            raise fault.with_traceback(None)
        receive_body(file, pieces)

    monkeypatch.setattr("broker.cluster.follower.receive_body", receive)
    body = b"large" * 1000
    large = LargeFile(1, tmp_path / "unused", len(body), crc32c(body))
    engine.bodies[body_key(large)] = [body]
    (tmp_path / "a" / LARGE).mkdir()
    (tmp_path / "a" / LARGE / "00000001").write_bytes(body)
    owner.put()
    owner.store.note(f"{LARGE_NOTE}1/1/q", LARGE_FILE.pack(large.size, large.checksum))
    owner.put()
    owner.put()
    with following(engine, tmp_path / "b"):
        pass
    assert tries == [1, 1, 1]
    assert applied(tmp_path / "b") == (1, 3)


def test_a_standby_that_can_t_keep_a_body_hears_of_the_next_owner_and_fetches_it_less_and_less_often(
    engine: MemoryEngine, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_room = False
    tries: list[float] = []

    def receive(file: LargeFile, pieces: Iterable[bytes]) -> None:
        tries.append(time.monotonic())
        if not has_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        receive_body(file, pieces)

    monkeypatch.setattr("broker.cluster.follower.receive_body", receive)
    monkeypatch.setattr("broker.cluster.follower.RETRY_S", 0.05)
    body = b"large" * 1000
    large = LargeFile(1, tmp_path / "unused", len(body), crc32c(body))
    engine.bodies[body_key(large)] = [body]
    owner.put()
    with following(engine, tmp_path / "b") as standby:
        owner.store.note(f"{LARGE_NOTE}1/1/q", LARGE_FILE.pack(large.size, large.checksum))
        owner.put(2)
        until(lambda: "No space left" in standby.follower.at.fault, "a word")
        before = standby.follower.at.position
        fold = LogFold(CELL)
        for position, data in enumerate(engine.records, 1):
            fold.feed(position, data)
        claim(engine, fold, b'{"member": "c"}')
        until(lambda: standby.owners[-1:] == [b'{"member": "c"}'], "the owner's word")
        assert standby.follower.at.position == before
        until(lambda: len(tries) > 4, "further tries")
        waits_s = [later - sooner for sooner, later in pairwise(tries)]
        assert all(wait_s > 0.05 * 2**at for at, wait_s in enumerate(waits_s))
        has_room = True
        until(lambda: standby.follower.at.position == engine.last, "the standby to go on")
    assert applied(tmp_path / "b") == (1, 3)


def test_a_body_that_a_replica_does_not_have_yet_is_waited_for(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    body = b"large" * 1000
    large = LargeFile(1, tmp_path / "unused", len(body), crc32c(body))
    engine.bodies[body_key(large)] = [body]
    (tmp_path / "a" / LARGE).mkdir()
    (tmp_path / "a" / LARGE / "00000001").write_bytes(body)
    owner.put()
    owner.store.note(f"{LARGE_NOTE}1/1/q", LARGE_FILE.pack(large.size, large.checksum))
    owner.put()
    stale = StaleLog(engine)
    with following(engine, tmp_path / "b", stale):
        pass
    assert stale.left == 0
    assert (tmp_path / "b" / LARGE / "00000001").read_bytes() == body


def test_a_body_that_takes_long_is_told_of(engine: MemoryEngine, owner: Owner, tmp_path: Path) -> None:
    body = b"large" * 1000
    large = LargeFile(1, tmp_path / "unused", len(body), crc32c(body))
    engine.bodies[body_key(large)] = [body]
    owner.put()
    owner.store.note(f"{LARGE_NOTE}1/1/q", LARGE_FILE.pack(large.size, large.checksum))
    owner.put()
    patient = PatientLog(engine)
    signs: list[int] = []
    standby = Standby(engine, tmp_path / "b", log=patient, alive=lambda: signs.append(1))
    assert patient.begun.wait(30)
    before = len(signs)
    until(lambda: len(signs) > before, "a sign of life while the body comes")
    patient.rest.set()
    until(lambda: standby.follower.at.position == engine.last, "the standby to be level")
    standby.stop()


def test_a_search_for_a_place_in_the_log_is_told_of_at_each_read(
    engine: MemoryEngine, tmp_path: Path
) -> None:
    fill_alone(tmp_path / "a")
    fold = LogFold(CELL)
    claim(engine, fold)
    begin_with(tmp_path / "a", engine, fold)
    claim(engine, fold)
    log = CountedLog(engine)
    standby = Standby(engine, tmp_path / "b", log=log, alive=log.tell)
    until(lambda: standby.follower.at.position == engine.last, "the standby to be level")
    standby.stop()
    # The search and the snapshot's pieces; the thread of a step tells once a second.
    first = log.told_before[:10]
    assert len(first) == len(set(first)) == 10


def test_nobody_takes_over_without_a_body_that_its_notes_name(
    engine: MemoryEngine, owner: Owner, tmp_path: Path
) -> None:
    body = b"large" * 1000
    large = LargeFile(1, tmp_path / "unused", len(body), crc32c(body))
    (tmp_path / "a" / LARGE).mkdir()
    (tmp_path / "a" / LARGE / "00000001").write_bytes(body)
    owner.put()
    owner.store.note(f"{LARGE_NOTE}1/1/q", LARGE_FILE.pack(large.size, large.checksum))
    owner.put()
    standby = Standby(engine, tmp_path / "b", ttl_ms=100)
    until(lambda: standby.follower.at.position == engine.last, "the standby to be level")
    time.sleep(0.5)
    assert standby.thread.is_alive(), "it waits"
    engine.bodies[body_key(large)] = [body]
    assert isinstance(standby.wait(), CellOwnership)
    assert (tmp_path / "b" / LARGE / "00000001").read_bytes() == body
