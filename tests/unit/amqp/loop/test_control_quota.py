"""Who belongs in the lane, and how much of the loop's time it has."""

from __future__ import annotations

from broker.amqp.loop.control_quota import (
    BURST,
    MILLISECOND_NS,
    MOST_DEBT,
    MOST_SAVED_NS,
    ControlQuota,
    CostMeter,
)


def test_a_burst_is_nobodys_business() -> None:
    debt = CostMeter(0)
    assert not debt.charge(BURST, 0, 0)
    assert debt.charge(1, 0, 0)


def test_a_debt_is_paid_by_time_and_by_messages() -> None:
    debt = CostMeter(0)
    assert debt.charge(BURST + 1000, 0, 0)
    assert debt.charge(0, 100, MILLISECOND_NS)
    assert not debt.charge(0, 100 + BURST // 6, MILLISECOND_NS)
    assert 0 < debt.units < BURST // 2


def test_a_consumer_that_settles_what_it_gets_never_owes() -> None:
    debt = CostMeter(0)
    for number in range(1, 1000):
        assert not debt.charge(2000, number * 1000, 0)
    assert debt.units == 2000


def test_a_debt_has_an_end() -> None:
    debt = CostMeter(0)
    debt.charge(10**9, 0, 0)
    assert debt.units == MOST_DEBT
    assert not debt.charge(0, 0, 10_000 * MILLISECOND_NS)


def test_turns_go_round() -> None:
    lane = ControlQuota(10, 0)
    for fd in (5, 3, 9):
        lane.put(fd)
    assert lane.take() == 5
    lane.put(5)
    lane.drop(3)
    assert [lane.take(), lane.take()] == [9, 5]
    assert not lane.waiting


def test_the_share_of_time() -> None:
    lane = ControlQuota(10, 0)
    now_ns = taken_ns = 0
    while now_ns < 1000 * MILLISECOND_NS:
        if lane.may_serve(now_ns):
            lane.charge(2 * MILLISECOND_NS)
            taken_ns += 2 * MILLISECOND_NS
        now_ns += MILLISECOND_NS
    assert 0.09 < (taken_ns - MOST_SAVED_NS) / now_ns < 0.11


def test_quiet() -> None:
    lane = ControlQuota(10, 0)
    lane.moved_ns = 7 * MILLISECOND_NS
    assert not lane.is_quiet(9 * MILLISECOND_NS)
    assert lane.is_quiet(13 * MILLISECOND_NS)
