"""Freed memory goes back to the system, in idle seconds and only when there is much of it."""

from __future__ import annotations

from broker.heap import SLACK_BYTES, Heap

MB = 1 << 20


class Process:
    def __init__(self) -> None:
        self.resident = 60 * MB
        self.used = 60 * MB
        self.trims = 0

    def trim(self) -> None:
        self.trims += 1
        self.resident = self.used


def test_a_grown_process_is_trimmed_once_it_is_idle() -> None:
    process = Process()
    heap = Heap(lambda: process.resident, process.trim)
    assert not heap.look(idle=True)
    process.resident += SLACK_BYTES
    assert not heap.look(idle=False)
    assert heap.look(idle=True)
    assert (process.resident, process.trims) == (60 * MB, 1)


def test_memory_in_use_is_not_asked_for_every_second() -> None:
    process = Process()
    heap = Heap(lambda: process.resident, process.trim)
    process.resident = process.used = 200 * MB
    assert heap.look(idle=True)
    assert not heap.look(idle=True)
    assert process.trims == 1


def test_growth_counts_from_the_least_there_was() -> None:
    process = Process()
    process.resident = process.used = 200 * MB
    heap = Heap(lambda: process.resident, process.trim)
    process.resident = process.used = 60 * MB
    assert not heap.look(idle=True)
    process.resident = 60 * MB + SLACK_BYTES
    assert heap.look(idle=True)
