"""The owner's thread at a log whose engine is sound, and at one that is not."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from broker.cluster.fold import LogFold
from broker.cluster.lease import OwnerLease
from broker.cluster.log import LogEntry, Outcome, Unknown
from broker.cluster.records import GROUPS, HANDOVER, MARK, SNAPSHOT_END, SNAPSHOT_PIECE, TAKEOVER, decode
from broker.cluster.writer import SAMPLE, LogWriter
from tests.unit.cluster.written import CELL, Chain, SoundLog

MS = 1_000_000
DEADLINE_S = 20.0


class World:
    """An owner of the first epoch and its log."""

    def __init__(self) -> None:
        take_over = Chain(1).write(TAKEOVER, b"a")
        self.log = SoundLog(take_over)
        fold = LogFold(CELL)
        fold.feed(1, take_over)
        now_ns = time.monotonic_ns()
        self.changed = threading.Event()
        self.lease = OwnerLease(3000 * MS, 500 * MS, 5 * MS, now_ns, now_ns)
        self.writer = LogWriter(self.log, fold, self.lease, b"a", self.changed.set)

    def kinds(self) -> list[int]:
        return [decode(*entry).kind for entry in list(self.log.entries)]


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.writer.stop()


def test_groups_become_durable_and_marks_follow(world: World) -> None:
    world.writer.submit(1, b"one")
    world.writer.submit(2, b"two")
    world.writer.start()
    wait(lambda: world.writer.acked_group == 2)
    wait(lambda: MARK in world.kinds())
    fold = LogFold(CELL)
    assert [group for entry in list(world.log.entries) for group in fold.feed(*entry).groups] == [
        b"one",
        b"two",
    ]


def test_no_mark_comes_behind_a_hand_over(world: World) -> None:
    world.writer.start()
    wait(lambda: MARK in world.kinds())
    assert world.writer.hand_over(b"b", DEADLINE_S)
    assert world.kinds()[-1] == HANDOVER
    due_ns = world.lease.mark_due_ns
    # It goes on with what is appended, and a mark would have come before that.
    wait(lambda: time.monotonic_ns() > due_ns)
    world.writer.submit(1, b"late")
    wait(lambda: world.writer.acked_group == 1)
    assert world.kinds()[-2:] == [HANDOVER, GROUPS]


def test_a_fault_found_while_the_leader_does_not_answer_is_told(world: World) -> None:
    # The first record is refused for another's; the leader doesn't say what stands there.
    stranger = Chain(0).write(MARK)
    world.log.append(stranger, 1)
    world.log.outcomes(0)
    world.log.is_reachable = False
    world.writer.submit(1, b"one")
    world.writer.start()
    wait(lambda: not world.writer.reachable)
    assert not world.writer.fault
    # An answer comes meanwhile that no sound engine gives.
    world.log.lies_by = 1
    world.log.append(b"", len(world.log.entries))
    wait(lambda: bool(world.writer.fault))
    assert "took a record at position" in world.writer.fault
    wait(world.changed.is_set)


def test_a_log_is_trimmed_only_to_a_record_that_leaves_no_group_half_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.cluster.writer.MOST_BYTES", 64)
    world.log.told = itertools.cycle((1, 5, 2, 7, 3))
    groups = 20 * SAMPLE
    for group in range(1, groups + 1):
        world.writer.submit(group, bytes(200 if group % 3 else 50))
    world.writer.start()
    wait(lambda: world.writer.acked_group == groups)
    positions = {world.writer.position_of(group) for group in range(1, groups + 1)} - {0, 1}
    assert len(positions) > 10
    for position in positions:
        record = decode(*world.log.entries[position - 1])
        assert record.part + 1 == record.parts


class LateLog(SoundLog):
    """A log that takes a record after some time, and whose answers come when its user has given them up."""

    def __init__(self, take_s: float, timeout_s: float, *records: bytes) -> None:
        super().__init__(*records)
        self._take_s, self._timeout_s = take_s, timeout_s
        self._coming: list[tuple[float, bytes, int]] = []
        self._sent: list[tuple[float, int]] = []

    def _arrive(self) -> None:
        while self._coming and self._coming[0][0] <= time.monotonic():
            _, data, after = self._coming.pop(0)
            if after == len(self.entries):
                self.entries.append(LogEntry(after + 1, data))

    def append(self, data: bytes, after: int) -> None:
        now = time.monotonic()
        self._coming.append((now + self._take_s, data, after))
        self._sent.append((now, after))

    def outcomes(self, timeout_s: float, wake: int = -1) -> list[Outcome]:
        if not self._sent:
            return super().outcomes(timeout_s, wake)
        time.sleep(max(min(self._sent[0][0] + self._timeout_s - time.monotonic(), timeout_s), 0))
        if time.monotonic() < self._sent[0][0] + self._timeout_s:
            return []
        sent, self._sent = self._sent, []
        return [Unknown(after) for _, after in sent]

    def last(self) -> int:
        self._arrive()
        return super().last()


def has_lease_after(lease: OwnerLease, since: float) -> bool:
    """Whether the time has come, and the lease holds."""
    return time.monotonic() > since and lease.may_act(time.monotonic_ns())


@pytest.mark.parametrize("take_s", [0.18, 0.3])
def test_a_log_whose_answers_come_too_late_keeps_its_owner_for_what_it_has_taken(take_s: float) -> None:
    """The time-out is 0.2 s, a third of the lease's time as it is by default."""
    take_over = Chain(1).write(TAKEOVER, b"a")
    log = LateLog(take_s, 0.2, take_over)
    fold = LogFold(CELL)
    fold.feed(1, take_over)
    now_ns = time.monotonic_ns()
    lease = OwnerLease(600 * MS, 100 * MS, 100 * MS, now_ns, now_ns)
    writer = LogWriter(log, fold, lease, b"a", lambda: None)
    writer.start()
    # Long after the lease that the take-over gave it.
    for later_s in (1.8, 0.6, 0.6):
        wait(partial(has_lease_after, lease, time.monotonic() + later_s))
    writer.stop()
    assert not writer.fault


class Saturated:
    """Keeps more than 10 MB of groups waiting, and the log takes one record at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.groups = 0
        world.log.told = self._ticks()
        self._stopping = False
        self._thread = threading.Thread(target=self._run)
        self._submit()
        world.writer.start()
        self._thread.start()

    def _ticks(self) -> Iterator[int]:
        while True:
            time.sleep(0.005)
            yield 1

    def _submit(self) -> None:
        while self.world.writer.pending_bytes < 12_000_000:
            self.groups += 1
            self.world.writer.submit(self.groups, bytes(500_000))

    def _run(self) -> None:
        while not self._stopping:
            self._submit()
            time.sleep(0.0002)

    def stop(self) -> None:
        """Submit nothing more."""
        self._stopping = True
        self._thread.join()


def test_a_snapshot_gets_on_among_groups_that_keep_coming_and_they_among_it(world: World) -> None:
    saturated = Saturated(world)
    done = threading.Event()
    pieces = 40
    for _ in range(pieces):
        world.writer.append(SNAPSHOT_PIECE, 0, b"piece")
    world.writer.append(SNAPSHOT_END, 0, b"", done.set)
    try:
        assert done.wait(DEADLINE_S)
        assert world.writer.pending_bytes > 5_000_000
    finally:
        saturated.stop()
    kinds = world.kinds()
    between = kinds[kinds.index(SNAPSHOT_PIECE) : kinds.index(SNAPSHOT_END)]
    assert between.count(GROUPS) >= pieces - 1
