"""The owner's writer over a log in memory: groups in order, marks, lost answers, the fence, the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from broker.cluster.fold import LogFold
from broker.cluster.lease import OwnerLease
from broker.cluster.log import Acked, Outcome
from broker.cluster.records import GROUPS, HANDOVER, MARK, MOST_BYTES, TAKEOVER, decode, encode
from broker.cluster.writer import LogWriter
from tests.cluster.memory_log import MemoryEngine, MemoryLog

CELL = 5
MS = 1_000_000
HOUR_NS = 3_600_000 * MS
ABOUT = b'{"member": "a"}'


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


class Writing:
    """A writer that owns the cell in epoch 1."""

    def __init__(self, mark_ns: int = HOUR_NS) -> None:
        self.engine = MemoryEngine()
        self.changes = threading.Semaphore(0)
        fold = LogFold(CELL)
        data, _ = encode(TAKEOVER, CELL, 1, 0, fold.digest, ABOUT)
        self.engine.records.append(data)
        fold.feed(1, data)
        now_ns = time.monotonic_ns()
        self.lease = OwnerLease(2 * HOUR_NS, MS, mark_ns, now_ns, now_ns)
        self.log = MemoryLog(self.engine)
        self.writer = LogWriter(self.log, fold, self.lease, ABOUT, self.changes.release)
        self.writer.start()

    def folded(self) -> tuple[list[bytes], list[int]]:
        """Return the groups that the log holds for whoever follows it, and the kinds of its records."""
        fold = LogFold(CELL)
        groups, kinds = [], []
        for at, data in enumerate(self.engine.records):
            step = fold.feed(at + 1, data)
            groups += step.groups
            if step.counts:
                kinds.append(step.record.kind)
        return groups, kinds


@pytest.fixture
def writing() -> Iterator[Writing]:
    made = Writing()
    yield made
    made.writer.stop()
    assert made.log.is_closed


def test_groups_are_appended_in_order_and_told(writing: Writing) -> None:
    groups = [b"group %d" % number for number in range(1, 301)]
    for number, data in enumerate(groups):
        writing.writer.submit(number + 1, data)
    until(lambda: writing.writer.acked_group == 300, "all groups")
    assert writing.folded()[0] == groups
    assert writing.writer.pending_bytes == 0
    assert writing.changes.acquire(timeout=5)
    assert writing.writer.acked_position == writing.engine.last


def test_a_group_that_is_larger_than_a_record_comes_in_parts(writing: Writing) -> None:
    large = bytes(range(256)) * (3 * MOST_BYTES // 256)
    for number, data in enumerate([b"before", large, b"after"]):
        writing.writer.submit(number + 1, data)
    until(lambda: writing.writer.acked_group == 3, "all groups")
    assert writing.folded()[0] == [b"before", large, b"after"]
    assert max(map(len, writing.engine.records)) <= MOST_BYTES + (MOST_BYTES >> 2) + 100


@pytest.mark.parametrize("fault", ["lose", "withhold"])
def test_an_answer_that_does_not_come_is_found_out(writing: Writing, fault: str) -> None:
    setattr(writing.engine, fault, 1)
    for number in range(1, 41):
        writing.writer.submit(number, b"group %d" % number)
    until(lambda: writing.writer.acked_group == 40, "all groups")
    assert writing.folded()[0] == [b"group %d" % number for number in range(1, 41)]


def test_an_engine_that_was_down_is_asked_again(writing: Writing) -> None:
    writing.engine.down = True
    writing.writer.submit(1, b"one")
    until(lambda: not writing.writer.reachable, "a word")
    assert writing.writer.acked_group == 0
    writing.engine.down = False
    until(lambda: writing.writer.acked_group == 1, "the group")
    assert writing.writer.reachable
    assert writing.folded()[0] == [b"one"]


def test_a_record_of_the_next_epoch_ends_it(writing: Writing) -> None:
    engine = writing.engine
    writing.writer.submit(1, b"one")
    until(lambda: writing.writer.acked_group == 1, "the group")
    last = decode(engine.last, engine.records[-1])
    data, _ = encode(TAKEOVER, CELL, 2, 1, last.digest, b"b")
    engine.records.append(data)
    writing.writer.submit(2, b"two")
    until(lambda: writing.writer.fenced == 2, "the fence")
    assert writing.writer.acked_group == 1
    assert writing.folded()[0] == [b"one"]


def test_an_owner_with_nothing_to_write_appends_marks_that_renew_its_lease() -> None:
    writing = Writing(mark_ns=20 * MS)
    before = writing.lease.ends_ns
    until(lambda: writing.engine.last > 4, "marks")
    until(lambda: writing.lease.ends_ns > before, "a longer lease")
    writing.writer.stop()
    mark = decode(2, writing.engine.records[1])
    assert (mark.kind, mark.payload, mark.group) == (MARK, ABOUT, 0)


def test_a_hand_over_stands_behind_all_groups(writing: Writing) -> None:
    for number in range(1, 101):
        writing.writer.submit(number, b"x" * 10_000)
    assert writing.writer.hand_over(b"b", 20)
    groups, kinds = writing.folded()
    assert (len(groups), kinds[-1]) == (100, HANDOVER)
    assert writing.writer.acked_group == 100


def test_a_hand_over_that_nobody_takes_is_given_up(writing: Writing) -> None:
    writing.engine.down = True
    assert not writing.writer.hand_over(b"b", 0.05)


def test_the_log_may_be_trimmed_up_to_a_position_with_no_later_group(writing: Writing) -> None:
    writer = writing.writer
    for number in range(1, 1001):
        writer.submit(number, b"x" * 2_000)
        if number % 5 == 0:
            until(lambda wanted=number: writer.acked_group == wanted, "groups")  # type: ignore[misc]
    known = writer.position_of(700)
    assert known > 64
    assert decode(known, writing.engine.records[known - 1]).group <= 700
    assert writer.position_of(700) >= known


class Wrong(MemoryLog):
    """An engine that says a record stands where it can't."""

    def outcomes(self, timeout_s: float, wake: int = -1) -> list[Outcome]:
        return [
            Acked(each.after, each.position + 1) if isinstance(each, Acked) else each
            for each in super().outcomes(timeout_s, wake)
        ]


def test_an_engine_that_breaks_its_promise_is_not_relied_on() -> None:
    engine = MemoryEngine()
    changes = threading.Semaphore(0)
    now_ns = time.monotonic_ns()
    lease = OwnerLease(2 * HOUR_NS, MS, HOUR_NS, now_ns, now_ns)
    writer = LogWriter(Wrong(engine), LogFold(CELL), lease, ABOUT, changes.release)
    writer.start()
    writer.submit(1, b"one")
    assert changes.acquire(timeout=20)
    assert "the log took a record at position 2 that was to follow 0" in writer.fault
    assert writer.acked_group == 0
    writer.stop()
    assert decode(1, engine.records[0]).kind == GROUPS
