"""Runs that readers look at: read in the order in which they were asked for, held while somebody looks."""

from __future__ import annotations

import pytest

from broker.engine import scan
from broker.engine.scan import Scans
from broker.engine.spool import Message, Run

pytestmark = pytest.mark.flow


class Disk:
    """A spool as far as scans know it; it notes which runs are read."""

    def __init__(self) -> None:
        self.asked: list[Run] = []
        self.nbytes = 0
        self.answers = 0

    def look_up(self, run: Run) -> None:
        self.asked.append(run)

    def scanned(self, _run: Run, messages: list[Message]) -> list[Message]:
        return messages

    def on_memory(self, nbytes: int) -> None:
        self.nbytes += nbytes

    def on_answer(self) -> None:
        self.answers += 1


def runs(count: int) -> list[Run]:
    made = [Run(number, number, 1, 10) for number in range(count)]
    for run in made:
        run.decode = lambda blob: []
    return made


def wanted(scans: Scans, disk: Disk, run: Run) -> bool:
    """Ask for a run's messages; whether they are there."""
    return scans.messages(disk, run) is not None  # type: ignore[arg-type]


def answer(scans: Scans, disk: Disk, run: Run, answered: object) -> None:
    scans.answered(disk, run, answered)  # type: ignore[arg-type]


def test_runs_are_read_in_order_a_few_at_a_time() -> None:
    scans, disk, made = Scans(), Disk(), runs(scan.MOST_READING + 2)
    for run in (*made, made[0]):
        assert not wanted(scans, disk, run)
    scans.read()
    assert disk.asked == made[: scan.MOST_READING]
    answer(scans, disk, made[0], b"blob")
    scans.read()
    assert disk.asked == made[: scan.MOST_READING + 1]


def test_a_run_that_was_read_serves_everybody_until_nobody_looks() -> None:
    scans, disk, (run,) = Scans(), Disk(), runs(1)
    assert not wanted(scans, disk, run)
    scans.read()
    answer(scans, disk, run, b"blob")
    assert (wanted(scans, disk, run), disk.nbytes, disk.answers) == (True, 4, 1)
    scans.sweep()
    assert wanted(scans, disk, run)
    scans.sweep()
    scans.sweep()
    assert (run.scanned, disk.nbytes, scans.nbytes) == (None, 0, 0)


def test_the_oldest_is_let_go_where_too_many_are_held() -> None:
    scans, disk, made = Scans(), Disk(), runs(scan.MOST_HELD + 1)
    for run in made:
        wanted(scans, disk, run)
        scans.read()
        answer(scans, disk, run, b"blob")
    assert [run.scanned is None for run in made] == [True, *[False] * scan.MOST_HELD]
    assert disk.nbytes == 4 * scan.MOST_HELD


def test_a_fault_is_told_once_and_not_asked_for_again() -> None:
    scans, disk, (run,) = Scans(), Disk(), runs(1)
    told: list[str] = []
    scans.ask(disk, run, lambda: told.append("first"))  # type: ignore[arg-type]
    scans.read()
    answer(scans, disk, run, OSError(5, "Input/output error"))
    assert (told, wanted(scans, disk, run)) == (["first"], False)
    scans.ask(disk, run, lambda: told.append("second"))  # type: ignore[arg-type]
    scans.read()
    assert (told, disk.asked) == (["first", "second"], [run])


def test_a_run_that_goes_meanwhile_is_not_read() -> None:
    scans, disk, (run,) = Scans(), Disk(), runs(1)
    told: list[str] = []
    scans.ask(disk, run, lambda: told.append("gone"))  # type: ignore[arg-type]
    run.gone = True
    scans.read()
    assert (told, disk.asked) == (["gone"], [])
