"""The owner's thread at the log: how what is submitted becomes records, and that none is forgotten."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from broker.cluster.fold import LogFold
from broker.cluster.lease import OwnerLease
from broker.cluster.log import Acked, LogEntry, Outcome
from broker.cluster.records import GROUPS, TAKEOVER, decode, encode, split
from broker.cluster.writer import FEW_IN_FLIGHT, WORTH_BYTES, LogWriter

CELL = 7
LONG_NS = 3_600_000_000_000
DEADLINE_S = 10.0
WHOLE_S = 60.0


class ListLog:
    """A log in memory. It answers when it is told to, or at once."""

    def __init__(self, *, at_once: bool) -> None:
        data, _ = encode(TAKEOVER, CELL, 1, 0, bytes(8), b"{}")
        self.entries = [LogEntry(1, data)]
        self.heard_ns = 0
        self.waits = 0
        self._at_once = at_once
        self._asked: list[int] = []
        self._told: list[Outcome] = []
        self._lock = threading.Lock()
        self._answered = threading.Event()

    def append(self, data: bytes, after: int) -> None:
        assert after == self.entries[-1].position
        self.entries.append(LogEntry(after + 1, data))
        with self._lock:
            if self._at_once:
                self._told.append(Acked(after, after + 1))
            else:
                self._asked.append(after)

    def answer(self, count: int) -> None:
        """Acknowledge so many; the writer sees it the next time it waits."""
        with self._lock:
            for _ in range(count):
                after = self._asked.pop(0)
                self._told.append(Acked(after, after + 1))

    def outcomes(self, timeout_s: float, wake: int = -1) -> list[Outcome]:
        deadline = time.monotonic() + timeout_s
        self.waits += 1
        while True:
            with self._lock:
                found, self._told = self._told, []
            left_s = deadline - time.monotonic()
            if found or left_s <= 0:
                return found
            if select.select([wake], [], [], min(left_s, 0.002))[0]:
                return []

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        return self.entries[position - 1 :]

    def first(self) -> int:
        return 1

    def last(self) -> int:
        return self.entries[-1].position

    def nbytes(self) -> int:
        return 0

    def trim(self, before: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def groups(self) -> list[list[bytes]]:
        """The groups of each record."""
        records = [decode(entry.position, entry.data) for entry in self.entries]
        return [list(split(0, record.payload)) for record in records if record.kind == GROUPS]


def wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def writer_of(log: ListLog, mark_ns: int = LONG_NS) -> LogWriter:
    fold = LogFold(CELL)
    fold.feed(1, log.entries[0].data)
    now_ns = time.monotonic_ns()
    return LogWriter(log, fold, OwnerLease(LONG_NS, 0, mark_ns, now_ns, now_ns), b"{}", lambda: None)


@pytest.fixture
def slow() -> Iterator[tuple[ListLog, LogWriter]]:
    """A writer at a log that answers when it is told to."""
    log = ListLog(at_once=False)
    writer = writer_of(log)
    writer.start()
    yield log, writer
    writer.stop()


def test_what_waits_goes_out_together_once_few_records_are_in_flight(slow: tuple[ListLog, LogWriter]) -> None:
    log, writer = slow
    for number in range(FEW_IN_FLIGHT):
        writer.submit(number + 1, b"first")
        wait_until(lambda number=number: len(log.groups()) == number + 1)  # type: ignore[misc]
    for number in range(FEW_IN_FLIGHT, 50):
        writer.submit(number + 1, b"later")
    assert len(log.groups()) == FEW_IN_FLIGHT
    assert writer.pending_bytes > 0
    log.answer(1)
    wait_until(lambda: len(log.groups()) == FEW_IN_FLIGHT + 1)
    assert log.groups()[-1] == [b"later"] * (50 - FEW_IN_FLIGHT)
    log.answer(FEW_IN_FLIGHT)
    wait_until(lambda: writer.acked_group == 50)
    assert writer.pending_bytes == 0


def test_what_is_worth_a_record_waits_for_none(slow: tuple[ListLog, LogWriter]) -> None:
    log, writer = slow
    for number in range(FEW_IN_FLIGHT):
        writer.submit(number + 1, b"first")
        wait_until(lambda number=number: len(log.groups()) == number + 1)  # type: ignore[misc]
    writer.submit(FEW_IN_FLIGHT + 1, bytes(WORTH_BYTES // 2))
    writer.submit(FEW_IN_FLIGHT + 2, bytes(WORTH_BYTES // 2))
    wait_until(lambda: len(log.groups()) == FEW_IN_FLIGHT + 1)
    log.answer(len(log.groups()))
    wait_until(lambda: writer.acked_group == FEW_IN_FLIGHT + 2)


def test_no_group_is_forgotten_whenever_it_is_submitted() -> None:
    """The writer waits for a second at most: a wake-up that is missed now and then would take minutes."""
    log = ListLog(at_once=True)
    writer = writer_of(log)
    writer.start()
    begun = time.monotonic()
    try:
        for number in range(1, 601):
            writer.submit(number, b"group")
            if number % 3 == 0:
                wait_until(lambda number=number: writer.acked_group == number)  # type: ignore[misc]
                assert time.monotonic() - begun < WHOLE_S
        wait_until(lambda: writer.acked_group == 600)
        assert writer.pending_bytes == 0
        assert sum(map(len, log.groups())) == 600
    finally:
        writer.stop()


def test_the_writer_wakes_for_what_there_is_alone() -> None:
    log = ListLog(at_once=True)
    writer = writer_of(log)
    writer.start()
    try:
        for number in range(1, 301):
            writer.submit(number, b"group")
            wait_until(lambda number=number: writer.acked_group == number)  # type: ignore[misc]
        assert log.waits < 300 * 5
    finally:
        writer.stop()
