"""Freed memory goes back to the system, in quiet seconds only."""

from __future__ import annotations

import gc
import weakref

from broker.server.heap import RARELY, Heap, give_back


def trimmed_at(seconds: list[bool]) -> list[int]:
    """The seconds, counted from 1, in which a heap that sees these was trimmed."""
    trims: list[None] = []
    heap = Heap(lambda: trims.append(None))
    found = []
    for now, quiet in enumerate(seconds, 1):
        before = len(trims)
        heap.look(quiet)
        if len(trims) > before:
            found.append(now)
    return found


def test_a_busy_broker_is_let_be() -> None:
    assert trimmed_at([False] * 100) == []


def test_it_is_trimmed_once_it_is_quiet_and_ever_more_rarely() -> None:
    assert trimmed_at([False, *[True] * 20]) == [2, 3, 5, 9, 17]


def test_what_is_let_go_of_later_is_found_as_well() -> None:
    assert trimmed_at([True] * 200)[-4:] == [32, RARELY, 2 * RARELY, 3 * RARELY]


def test_work_begins_it_anew() -> None:
    assert trimmed_at([True, True, True, False, True]) == [1, 2, 5]


def test_closed_things_in_cycles_are_collected() -> None:
    class Ring:
        def __init__(self) -> None:
            self.me = self

    gc.disable()
    try:
        gone = weakref.ref(Ring())
        give_back()
        assert gone() is None
    finally:
        gc.enable()
