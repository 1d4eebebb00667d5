"""The delay after a failed delivery: it grows up to the longest, and jitter only shortens it."""

from __future__ import annotations

from broker.queues.redelivery import RedeliveryDelay


def test_each_failure_multiplies_the_delay_up_to_the_longest() -> None:
    delay = RedeliveryDelay(100, 2.0, 500, 0)
    assert [delay.delay_ms(failures, 1) for failures in (1, 2, 3, 4, 100_000)] == [100, 200, 400, 500, 500]


def test_without_a_multiplier_all_are_the_same() -> None:
    delay = RedeliveryDelay(100, 1.0, 1000, 0)
    assert [delay.delay_ms(failures, 1) for failures in (1, 2, 1_000_000)] == [100, 100, 100]


def test_jitter_spreads_messages_over_its_part_of_the_delay() -> None:
    delay = RedeliveryDelay(10_000, 1.0, 10_000, 20)
    found = [delay.delay_ms(1, seq) for seq in range(1000)]
    assert min(found) >= 8000
    assert max(found) <= 10_000
    assert len({each // 100 for each in found}) == 20
