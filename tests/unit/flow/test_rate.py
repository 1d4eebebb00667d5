"""Rates and shares: never more than they allow, and never less for long."""

from __future__ import annotations

import random

import pytest

from broker.flow.rate import SECOND_NS, KeyedRate, TimeShare, TokenBucket

pytestmark = pytest.mark.flow


def passed(bucket: TokenBucket, sizes: list[int], until_ns: int) -> list[tuple[int, int]]:
    """Send as fast as allowed: when each item passed, and its size."""
    now_ns = 0
    found: list[tuple[int, int]] = []
    for size in sizes:
        now_ns += bucket.wait_ns(size, now_ns)
        if now_ns > until_ns:
            break
        assert bucket.wait_ns(size, now_ns) == 0
        bucket.take(size)
        found.append((now_ns, size))
    return found


def test_the_burst_passes_at_once_and_the_rest_at_the_rate() -> None:
    found = passed(TokenBucket(1000, 500, 0), [100] * 30, 10 * SECOND_NS)
    assert [when for when, _ in found[:5]] == [0] * 5
    assert [when for when, _ in found[5:8]] == [SECOND_NS // 10, SECOND_NS // 5, 3 * SECOND_NS // 10]


def test_an_item_larger_than_the_burst_passes_and_is_paid_back() -> None:
    found = passed(TokenBucket(1000, 500, 0), [2000, 100, 100], 10 * SECOND_NS)
    # 1500 bytes of debt and 100 of its own, at 1000 a second.
    assert [when for when, _ in found] == [0, 1600 * SECOND_NS // 1000, 1700 * SECOND_NS // 1000]


def test_time_that_stands_still_or_runs_back_gives_nothing() -> None:
    bucket = TokenBucket(1000, 100, SECOND_NS)
    bucket.take(100)
    assert bucket.wait_ns(100, SECOND_NS) == SECOND_NS // 10
    assert bucket.wait_ns(100, 0) == SECOND_NS // 10


@pytest.mark.parametrize("seed", range(5))
def test_no_span_of_time_sees_more_than_rate_and_burst(seed: int) -> None:
    walk = random.Random(seed)
    rate, burst = walk.randint(100, 100_000), walk.randint(1, 5000)
    sizes = [walk.choice([1, 50, 1472, 9000]) for _ in range(300)]
    found = passed(TokenBucket(rate, burst, 0), sizes, 3600 * SECOND_NS)
    allowed = max(burst, 9000)
    for i in range(0, len(found), 7):
        total = 0
        for j in range(i, len(found)):
            total += found[j][1]
            assert total <= rate * (found[j][0] - found[i][0]) / SECOND_NS + allowed + found[j][1]
    elapsed = found[-1][0] / SECOND_NS
    assert sum(size for _, size in found) >= rate * elapsed * 0.99


def test_a_key_owes_a_step_for_each_event_and_pays_with_time() -> None:
    rate = KeyedRate(SECOND_NS, 10)
    for _ in range(3):
        rate.count("a", SECOND_NS)
    assert [rate.owed_ns("a", second * SECOND_NS) for second in (1, 2, 4, 9)] == [
        *(3 * SECOND_NS, 2 * SECOND_NS, 0, 0),
    ]
    assert rate.owed_ns("b", SECOND_NS) == 0


def test_a_key_that_was_idle_has_saved_nothing() -> None:
    rate = KeyedRate(SECOND_NS, 10)
    rate.count("a", 0)
    rate.count("a", 100 * SECOND_NS)
    assert rate.owed_ns("a", 100 * SECOND_NS) == SECOND_NS


def test_only_so_many_keys_are_known_those_counted_last() -> None:
    rate = KeyedRate(SECOND_NS, 2)
    for key in ("a", "b", "a", "c"):
        rate.count(key, 0)
    assert [rate.owed_ns(key, 0) // SECOND_NS for key in "abc"] == [2, 0, 1]
    assert len(rate) == 2


def test_keys_that_owe_nothing_are_forgotten_from_the_oldest_on() -> None:
    rate = KeyedRate(SECOND_NS, 10)
    for key, at in (("a", 0), ("b", 0), ("b", 0), ("c", 0)):
        rate.count(key, at)
    rate.forget(SECOND_NS)
    # c owes nothing either, and goes once b does.
    assert len(rate) == 2
    rate.forget(2 * SECOND_NS)
    assert len(rate) == 0


def test_a_share_of_the_time_saves_and_owes_within_bounds() -> None:
    share = TimeShare(10, 1000, 500, 0)
    share.charge(10_000)
    assert share.saved_ns == -500
    assert not share.may_serve(5000)
    assert share.may_serve(5010)
    assert share.may_serve(10**9)
    assert share.saved_ns == 1000
    share.charge(300)
    share.give_back(900)
    assert share.saved_ns == 1000
