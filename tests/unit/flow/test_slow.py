"""Slow consumers: below a rate for so long, with work to do (FLOW §5)."""

from __future__ import annotations

import pytest

from broker.flow.slow import RECOVERED, SAME, SLOWED, SlowWatch

pytestmark = pytest.mark.flow

SECOND = 1_000_000_000


class Looks:
    """A watch that is asked once a second."""

    def __init__(self, rate: int, for_s: int) -> None:
        self.watch = SlowWatch(rate, for_s * 1000)
        self.now_s = 0
        self.settled = 0

    def seconds(self, count: int, settles: int, has_work: bool = True) -> list[int]:
        """So many seconds with so many settled in each: what each look said."""
        found = []
        for _ in range(count):
            self.now_s += 1
            self.settled += settles
            found.append(self.watch.look(self.now_s * SECOND, self.settled, has_work))
        return found


def test_who_settles_too_few_is_slow_after_the_time_for_it() -> None:
    looks = Looks(rate=10, for_s=30)
    assert looks.seconds(30, 9) == [SAME] * 30
    assert looks.seconds(1, 9) == [SLOWED]
    assert looks.watch.slow


def test_it_is_told_once_and_once_more_when_it_keeps_up_again() -> None:
    looks = Looks(rate=10, for_s=3)
    assert looks.seconds(20, 1).count(SLOWED) == 1
    assert looks.seconds(6, 20).count(RECOVERED) == 1
    assert not looks.watch.slow


def test_who_keeps_up_is_never_slow() -> None:
    assert set(Looks(rate=10, for_s=5).seconds(200, 10)) == {SAME}


def test_settling_in_batches_counts_by_the_mean() -> None:
    looks = Looks(rate=10, for_s=10)
    found = []
    for _ in range(20):
        found += looks.seconds(9, 0) + looks.seconds(1, 100)
    assert set(found) == {SAME}


def test_an_empty_queue_says_nothing() -> None:
    looks = Looks(rate=10, for_s=3)
    assert set(looks.seconds(100, 0, has_work=False)) == {SAME}


def test_without_work_a_slow_one_is_slow_no_more() -> None:
    looks = Looks(rate=10, for_s=3)
    looks.seconds(5, 0)
    assert looks.watch.slow
    assert looks.seconds(1, 0, has_work=False) == [RECOVERED]


def test_a_fast_one_that_stalls_is_slow_one_period_later_at_most_two() -> None:
    looks = Looks(rate=10, for_s=5)
    looks.seconds(60, 100)
    found = looks.seconds(10, 0)
    assert 4 <= found.index(SLOWED) <= 9
