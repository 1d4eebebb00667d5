"""One producer's credit: use, return, parked messages, and how it uses its credit."""

from __future__ import annotations

from broker import constants
from broker.flow.producer_credit import IDLE_NS, PROBE_NS, UNKNOWN_BYTES, ProducerCredit
from tests.unit.flow.ports import MS, Link, allocator


def producer(window: int = 100, initial: int = 10) -> tuple[ProducerCredit, Link]:
    """Return a producer that was granted its first window, and its link."""
    address, link = allocator(1000), Link()
    account = address.open(link, window, initial, 0)
    address.settle_turn(0)
    return account, link


def test_credit_is_used_late_or_not_there() -> None:
    account, link = producer()
    assert (account.outstanding, link.granted) == (10, 10)
    assert account.use(1, MS) == constants.TAKEN
    account.allocator.take_back(account, 9, MS)
    assert account.granted == 10
    assert account.use(1, MS) == constants.LATE
    account.return_unused(8, MS)
    assert account.use(1, MS) == constants.VIOLATION
    assert (account.used, account.withdrawn, account.outstanding, account.late_count) == (10, 0, 0, 1)


def test_the_first_message_tells_the_size_and_later_ones_adjust_it() -> None:
    account, _ = producer()
    assert account.reserve_bytes == UNKNOWN_BYTES
    account.use(100, MS)
    assert account.learned_bytes == 100
    account.use(52, MS)
    assert account.learned_bytes == 97
    account.use(5_000, MS)
    assert account.learned_bytes == account.reserve_bytes == 5_000


def test_parked_messages_are_admitted_refused_or_taken_back() -> None:
    account, link = producer()
    for name, patient in (("a", False), ("b", True), ("c", False)):
        account.park(name, 10, MS, patient)
    assert link.revoked == 10
    assert account.parked_bytes == 30
    assert account.unpark("c")
    assert not account.unpark("c")
    assert account.refuse_until(MS) == 0
    assert link.refused == ["a"]
    assert account.next_parked() == ("b", 10)
    assert account.parked_bytes == 0


def test_a_window_is_resized_and_asks_at_half_of_it() -> None:
    account, _ = producer()
    account.resize(6)
    assert (account.window, account.low, account.wants()) == (6, 3, 0)


def test_expected_use_is_a_little_more_than_the_largest_burst() -> None:
    account, _ = producer()
    now_ns = 2 * IDLE_NS
    assert account.expected_use(now_ns) == 0
    for _ in range(8):
        account.use(1, now_ns)
    assert (account.had, account.expected_use(now_ns)) == (10, 8 + 2 + 1)
    later = now_ns + IDLE_NS + 1
    account.use(1, later)
    assert (account.burst, account.gap_ns) == (1, IDLE_NS + 1)
    assert account.park_timeout_ns() == PROBE_NS
    assert not account.is_idle(later)
    assert account.is_idle(later + IDLE_NS)
