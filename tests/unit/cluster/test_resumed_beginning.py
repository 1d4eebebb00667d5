"""A member that ended while it wrote its directory as the beginning of a cell's log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import broker.server.cluster.beginning
from broker.cluster.bodies import BodyStore
from broker.cluster.claims import claimed
from broker.cluster.fold import LogFold
from broker.cluster.follower import CellOwnership
from broker.cluster.lease import OwnerLease
from broker.cluster.records import SNAPSHOT_END, SNAPSHOT_PIECE, TAKEOVER, decode, encode
from broker.cluster.writer import LogWriter
from broker.errors import OperatorError
from broker.server.cluster.beginning import begin_with
from broker.store.cache import CacheStore
from broker.store.disk import DiskStore
from broker.store.port import DURABLE
from tests.cluster.memory_log import MemoryEngine, MemoryLog
from tests.unit.cluster.test_follower import (
    CELL,
    FILE_BYTES,
    MARK_NS,
    MS,
    TTL_NS,
    Owner,
    Standby,
    applied,
    following,
    names,
    until,
)

MESSAGES = 8
# The largest is larger than a record.
SIZES = [300_000] * (MESSAGES - 1) + [1_500_000]


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """Return a single broker's directory."""
    directory = tmp_path / "alone"
    store = DiskStore.open(directory, file_bytes=FILE_BYTES)
    queue = store.open_log("q", b"{}")
    for number, size in enumerate(SIZES, 1):
        queue.append(number, DURABLE, 0, 0, bytes(size))
    store.seal()
    until(lambda: store.attend() == store.group - 1, "the disk")
    store.close()
    return directory


def take_over(engine: MemoryEngine, directory: Path) -> LogFold:
    """Have a member follow the log with its directory until it owns the cell."""
    found = Standby(engine, directory, ttl_ms=30).wait()
    assert isinstance(found, CellOwnership)
    return found.fold


def begin(
    engine: MemoryEngine, directory: Path, fold: LogFold, is_stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Write the beginning, as an owner does; return whether it is there."""
    now_ns = time.monotonic_ns()
    lease = OwnerLease(TTL_NS, MS, MARK_NS, now_ns, now_ns)
    writer = LogWriter(MemoryLog(engine), fold, lease, b'{"member": "b"}', lambda: None)
    writer.start()
    bodies = BodyStore(MemoryLog(engine))
    try:
        return begin_with(directory, FILE_BYTES, writer, bodies, is_stopped)
    finally:
        bodies.stop()
        writer.stop()


def kinds(engine: MemoryEngine) -> list[int]:
    """Return the kinds of all records."""
    return [decode(0, each).kind for each in engine.records]


@pytest.fixture
def half(engine: MemoryEngine, alone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a member that ended with one piece in the log."""
    fold = take_over(engine, alone)
    with monkeypatch.context() as waiting:
        # It waits behind the first piece for as long as it may.
        waiting.setattr(broker.server.cluster.beginning, "MOST_WAITING", -1)
        assert not begin(engine, alone, fold, lambda: SNAPSHOT_PIECE in kinds(engine))
    assert SNAPSHOT_END not in kinds(engine)
    return alone


@pytest.fixture
def other(engine: MemoryEngine, tmp_path: Path) -> Iterator[Standby]:
    made = Standby(engine, tmp_path / "c", ttl_ms=30, member="c")
    yield made
    made.stop()


def test_a_member_that_ended_while_it_wrote_the_beginning_takes_over_and_begins_anew(
    engine: MemoryEngine, half: Path, other: Standby, tmp_path: Path
) -> None:
    until(lambda: "which only the directory of b has" in other.follower.at.fault, "a word")
    fold = take_over(engine, half)
    assert (fold.epoch, fold.group) == (2, 0)
    # It would have taken over by itself, and serve an empty cell.
    assert [
        claimed(decode(0, each).payload) for each in engine.records if decode(0, each).kind == TAKEOVER
    ] == [
        ("b", True),
        ("b", True),
    ]
    assert begin(engine, half, fold)
    until(lambda: other.follower.at.position == engine.last, "the other member")
    other.stop()
    assert applied(half) == applied(tmp_path / "c") == (2, 0)
    assert names(half) == names(tmp_path / "c") == {"q": list(range(1, MESSAGES + 1))}
    for directory in (half, tmp_path / "c"):
        with following(engine, directory):
            pass
        assert not directory.with_name(f"{directory.name}.aside").exists()


def test_nobody_else_takes_over_before_the_first_piece_either(
    engine: MemoryEngine, alone: Path, tmp_path: Path
) -> None:
    take_over(engine, alone)
    other = Standby(engine, tmp_path / "c", ttl_ms=30, member="c")
    until(lambda: "which only the directory of b has" in other.follower.at.fault, "a word")
    until(lambda: other.follower._clock.takeover_due(time.monotonic_ns()), "its time")
    assert take_over(engine, alone).epoch == 2
    other.stop()


@pytest.mark.parametrize("late", [0, 1, 4])
def test_one_that_ended_before_its_directory_said_so_loads_what_it_wrote(
    engine: MemoryEngine, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """Some of the last records may come only when it has read the log."""
    fold = take_over(engine, alone)
    with monkeypatch.context() as killed:
        killed.setattr(CacheStore, "begin_log", lambda *args: None)
        assert begin(engine, alone, fold)
    assert applied(alone) == (0, 0)
    coming = [engine.records.pop() for _ in range(late)][::-1]
    again = Standby(engine, alone)
    until(lambda: again.follower.at.position == engine.last, "the standby to be level")
    for each in coming:
        engine.records.append(each)
    until(lambda: again.follower.at.position == engine.last, "the standby to be level")
    again.stop()
    assert applied(alone) == (1, 0)
    assert names(alone) == {"q": list(range(1, MESSAGES + 1))}
    assert (tmp_path / "alone.aside").exists()


def test_one_that_has_data_of_its_own_takes_no_groups_of_another_owner(
    engine: MemoryEngine, alone: Path, tmp_path: Path
) -> None:
    standby = Standby(engine, alone)
    owner = Owner(engine, tmp_path / "a")
    owner.put()
    found = standby.wait()
    owner.stop()
    assert isinstance(found, OperatorError)
    assert "it holds a broker's data" in str(found)
    assert names(alone) == {"q": list(range(1, MESSAGES + 1))}


def test_the_beginning_of_another_member_is_not_gone_on_with(engine: MemoryEngine, alone: Path) -> None:
    fold = LogFold(CELL)
    data, _ = encode(TAKEOVER, CELL, 1, 0, fold.digest, b'{"member": "a", "begins": true}')
    engine.records.append(data)
    found = Standby(engine, alone).wait()
    assert isinstance(found, OperatorError)
    assert "it holds a broker's data" in str(found)


def test_a_payload_that_says_nothing_is_nobodys() -> None:
    assert claimed(b"a") == claimed(b"[]") == claimed(b"{}") == ("", False)
    assert claimed(b'{"member": "a", "begins": true}') == ("a", True)
