"""The log is trimmed behind a snapshot, and whoever joins afterwards has everything that is live."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import broker.cluster.cleaning
from broker.cluster.cleaning import LogCleaner, SettledLog
from broker.cluster.log import LogUnavailable
from broker.cluster.records import SNAPSHOT_PIECE, decode
from broker.errors import OperatorError
from broker.store.port import DURABLE
from tests.cluster.memory_log import MemoryEngine, MemoryLog
from tests.store.replicas import read_directory
from tests.unit.cluster.test_follower import Owner, SlowLog, UnsteadyLog, following, until


class Cleaning:
    """An owner with messages, most of which are done with; its store's loop is a thread here."""

    def __init__(self, engine: MemoryEngine, folder: Path) -> None:
        self.engine = engine
        self.owner = Owner(engine, folder / "a")
        # One at a time, so that each group is a record of its own.
        for _ in range(300):
            self.owner.put()
        for seq in range(1, 291):
            self.owner.queue.forget(seq, 10)
            self.owner.store.seal()
        until(lambda: self.owner.store.attend() == self.owner.store.group - 1, "the log's answer")
        self.log = MemoryLog(engine)
        self.lock = threading.Lock()
        self.cleaner = LogCleaner(
            self.log,
            self.owner.writer,
            folder / "a",
            lambda: 100,
            self.backup,
            log_size=1000,
            settled_s=0,
            least_bytes=0,
        )
        self.cleaner.look()
        self._stopping = False
        self._loop = threading.Thread(target=self._attend)
        self._loop.start()

    def backup(self, target: Path, done: Callable[[Exception | None], None]) -> None:
        """Copy the owner's directory."""
        with self.lock:
            self.owner.store.backup(target, done)

    def _attend(self) -> None:
        while not self._stopping:
            with self.lock:
                self.owner.store.attend()
            time.sleep(0.002)

    def stop(self) -> None:
        """End all of it."""
        self._stopping = True
        self._loop.join()
        self.owner.stop()
        self.log.close()


@pytest.fixture
def cleaning(tmp_path: Path) -> Iterator[Cleaning]:
    made = Cleaning(MemoryEngine(), tmp_path)
    yield made
    made.stop()


def test_one_that_joins_behind_a_trimmed_log_has_all_that_is_live(cleaning: Cleaning, tmp_path: Path) -> None:
    before = sum(map(len, cleaning.engine.records))
    assert cleaning.cleaner.clean()
    assert cleaning.engine.trimmed > 100
    assert sum(map(len, cleaning.engine.records)) < before / 2
    assert cleaning.cleaner.snapshots == 1
    assert not (tmp_path / "a.snapshot").exists()
    with cleaning.lock:
        cleaning.owner.put(5)
    with following(cleaning.engine, tmp_path / "b"):
        pass
    _, (shelves, _) = read_directory(tmp_path / "b")
    [(name, _, _, held)] = shelves.values()
    assert (name, [each[0] for each in held]) == ("q", list(range(291, 306)))


def test_the_log_of_an_owner_that_does_nothing_more_does_not_grow(cleaning: Cleaning, tmp_path: Path) -> None:
    """No group comes, and each snapshot replaces the one before it."""
    sizes = []
    for _ in range(4):
        cleaning.cleaner.look()
        assert cleaning.cleaner.clean()
        sizes.append(cleaning.log.nbytes())
    assert max(sizes[1:]) < 2 * sizes[1]
    with following(cleaning.engine, tmp_path / "b"):
        pass
    _, (shelves, _) = read_directory(tmp_path / "b")
    assert [each[0] for each in next(iter(shelves.values()))[3]] == list(range(291, 301))


def test_a_standby_that_was_held_up_while_the_log_was_trimmed_joins_anew(
    cleaning: Cleaning, tmp_path: Path
) -> None:
    slow = SlowLog(cleaning.engine)
    with following(cleaning.engine, tmp_path / "b", slow) as standby:
        slow.is_held = True
        for _ in range(5):
            with cleaning.lock:
                cleaning.owner.put()
        cleaning.cleaner.look()
        assert cleaning.cleaner.clean()
        assert standby.follower.at.position < cleaning.engine.trimmed
        slow.is_held = False
        with cleaning.lock:
            cleaning.owner.put(5)
        last = cleaning.owner.writer.acked_group
        until(lambda: standby.follower.at.group == last, "the groups behind the snapshot")
    _, (shelves, _) = read_directory(tmp_path / "b")
    assert [each[0] for each in next(iter(shelves.values()))[3]] == list(range(291, 311))
    assert (tmp_path / "b.aside").exists()


def test_a_log_that_ceases_to_answer_within_a_snapshot_leaves_nobody_with_half_of_it(
    cleaning: Cleaning, tmp_path: Path
) -> None:
    assert cleaning.cleaner.clean()
    unsteady = UnsteadyLog(cleaning.engine, times=1)
    with following(cleaning.engine, tmp_path / "b", unsteady) as standby:
        last = cleaning.owner.writer.acked_group
        until(lambda: standby.follower.at.group == last, "all groups")
    assert unsteady.left < 0
    _, (shelves, _) = read_directory(tmp_path / "b")
    assert [each[0] for each in next(iter(shelves.values()))[3]] == list(range(291, 301))


def test_a_copy_takes_as_long_as_it_takes(cleaning: Cleaning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.cluster.cleaning, "LOOK_S", 0.05)
    monkeypatch.setattr(broker.cluster.cleaning, "WAIT_S", 1.0)

    def slow(target: Path, done: Callable[[Exception | None], None]) -> None:
        threading.Timer(1.5, lambda: cleaning.backup(target, done)).start()

    monkeypatch.setattr(cleaning.cleaner, "_backup", slow)
    assert cleaning.cleaner.clean()
    assert cleaning.engine.trimmed > 100


def test_a_log_begins_with_no_part_of_a_group(cleaning: Cleaning, tmp_path: Path) -> None:
    with cleaning.lock:
        cleaning.owner.queue.append(301, DURABLE, 0, 0, b"x" * 3_000_000)
        cleaning.owner.store.seal()
        until(lambda: cleaning.owner.writer.acked_group == cleaning.owner.store.group - 1, "the log's answer")
    parts = decode(cleaning.engine.last, cleaning.engine.records[-1]).parts
    assert parts > 2
    # As if somebody looked when some of them were there.
    assert cleaning.owner.writer.whole_position == cleaning.engine.last - parts
    cleaning.cleaner.look()
    assert cleaning.cleaner.clean()
    first = decode(cleaning.engine.trimmed + 1, cleaning.engine.records[0])
    assert first.parts == 1
    with following(cleaning.engine, tmp_path / "b"):
        pass
    _, (shelves, _) = read_directory(tmp_path / "b")
    assert [each[0] for each in next(iter(shelves.values()))[3]] == list(range(291, 302))


def test_a_message_that_is_larger_than_a_record_is_in_the_snapshot_in_parts(
    cleaning: Cleaning, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 6_000
    with cleaning.lock:
        cleaning.owner.queue.append(301, DURABLE, 0, 0, data)
        cleaning.owner.store.seal()
        until(lambda: cleaning.owner.store.attend() == cleaning.owner.store.group - 1, "the log's answer")
    cleaning.cleaner.look()
    assert cleaning.cleaner.clean()
    records = [decode(0, each) for each in cleaning.engine.records]
    assert max(each.parts for each in records if each.kind == SNAPSHOT_PIECE) > 1
    with cleaning.lock:
        cleaning.owner.seq = 301
        cleaning.owner.put(2)
    with following(cleaning.engine, tmp_path / "b"):
        pass
    _, (shelves, _) = read_directory(tmp_path / "b")
    held = {each[0]: each for each in next(iter(shelves.values()))[3]}
    assert list(held) == list(range(291, 304))
    assert data in held[301]


def test_a_log_with_nothing_to_trim_gets_no_snapshot(cleaning: Cleaning) -> None:
    before = cleaning.engine.last
    cleaning.log.trim(cleaning.owner.writer.acked_position)
    assert not cleaning.cleaner.clean()
    assert cleaning.engine.last == before
    assert cleaning.cleaner.snapshots == 0


def test_a_standby_that_was_there_goes_on_past_a_snapshot(cleaning: Cleaning, tmp_path: Path) -> None:
    with following(cleaning.engine, tmp_path / "b") as standby:
        assert cleaning.cleaner.clean()
        with cleaning.lock:
            cleaning.owner.put(5)
        until(lambda: standby.follower.at.position == cleaning.engine.last, "the standby to be level")
    with following(cleaning.engine, tmp_path / "b"):
        pass
    _, (shelves, _) = read_directory(tmp_path / "b")
    assert [each[0] for each in next(iter(shelves.values()))[3]] == list(range(291, 306))
    assert not list(tmp_path.glob("b.aside"))


def test_a_copy_that_fails_trims_nothing_and_leaves_nothing(cleaning: Cleaning, tmp_path: Path) -> None:
    def failing(target: Path, done: Callable[[Exception | None], None]) -> None:
        target.mkdir()
        done(OSError("no room"))

    cleaner = LogCleaner(
        cleaning.log, cleaning.owner.writer, tmp_path / "a", lambda: 0, failing, 0, least_bytes=0
    )
    cleaner.look()
    with pytest.raises(OperatorError, match="can't be copied: no room"):
        cleaner.clean()
    assert cleaning.engine.trimmed == 0
    assert not (tmp_path / "a.snapshot").exists()


def test_an_engine_that_does_not_answer_keeps_the_log(cleaning: Cleaning) -> None:
    class Untrimmed(MemoryLog):
        def trim(self, before: int) -> None:
            raise LogUnavailable("no answer")

    cleaner = LogCleaner(
        Untrimmed(cleaning.engine),
        cleaning.owner.writer,
        cleaning.owner.store.path,
        lambda: 0,
        cleaning.backup,
        0,
        least_bytes=0,
    )
    cleaner.look()
    with pytest.raises(LogUnavailable):
        cleaner.clean()
    assert cleaner.snapshots == 0
    assert cleaning.engine.trimmed == 0


def test_the_cleaner_s_thread_trims_once_the_log_is_too_long(
    cleaning: Cleaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.cluster.cleaning, "LOOK_S", 0.02)
    cleaning.cleaner.start()
    until(lambda: cleaning.cleaner.snapshots, "a snapshot")
    cleaning.cleaner.stop()
    assert cleaning.engine.trimmed > 0
    assert cleaning.cleaner.log_bytes > 1000


def test_a_cleaner_says_why_the_log_grows_until_it_is_trimmed(
    cleaning: Cleaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.cluster.cleaning, "LOOK_S", 0.02)
    backup = cleaning.backup
    monkeypatch.setattr(
        cleaning.cleaner, "_backup", lambda target, done: done(OSError(errno.ENOSPC, "no space left"))
    )
    cleaning.cleaner.start()
    until(lambda: "no space left" in cleaning.cleaner.fault, "a fault")
    monkeypatch.setattr(cleaning.cleaner, "_backup", backup)
    until(lambda: cleaning.cleaner.snapshots and not cleaning.cleaner.fault, "a snapshot")
    cleaning.cleaner.stop()


def test_a_snapshot_that_the_log_takes_nothing_of_is_given_up_with_a_word(
    cleaning: Cleaning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.cluster.cleaning, "WAIT_S", 0.2)
    monkeypatch.setattr(cleaning.owner.writer, "append", lambda *record: None)
    with pytest.raises(TimeoutError, match="taken nothing of a snapshot"):
        cleaning.cleaner.clean()
    assert cleaning.engine.trimmed == 0


def test_what_is_new_is_not_settled_and_stays(cleaning: Cleaning, tmp_path: Path) -> None:
    log, writer = cleaning.log, cleaning.owner.writer
    cleaner = LogCleaner(log, writer, tmp_path / "a", lambda: 0, cleaning.backup, 1 << 30, 3600, 0)
    cleaner.look()
    assert not cleaner.clean()
    half = log.nbytes()
    cleaner = LogCleaner(log, writer, tmp_path / "a", lambda: 0, cleaning.backup, half, 3600, 0)
    cleaner.look()
    settled = log.last()
    with cleaning.lock:
        cleaning.owner.put(400)
    assert cleaner.look()
    assert cleaner.clean()
    assert cleaning.engine.trimmed == settled - 1
    with following(cleaning.engine, tmp_path / "b"):
        pass
    _, (shelves, _) = read_directory(tmp_path / "b")
    assert [each[0] for each in next(iter(shelves.values()))[3]] == list(range(291, 701))


def test_what_is_old_enough_or_has_enough_behind_it_is_settled() -> None:
    settled = SettledLog(1000, 60)
    settled.look(0, 10, 500)
    settled.look(30, 20, 900)
    assert (settled.position, settled.nbytes) == (0, 0)
    settled.look(60, 30, 950)
    assert (settled.position, settled.nbytes) == (10, 500)
    settled.look(61, 40, 2000)
    assert (settled.position, settled.nbytes) == (30, 950)
    settled.trimmed(900)
    assert settled.nbytes == 50
    # What was trimmed counts as appended all the same.
    settled.look(62, 50, 1900)
    assert (settled.position, settled.nbytes) == (30, 50)
    settled.look(63, 60, 2101)
    assert (settled.position, settled.nbytes) == (40, 1100)
