"""Who may act, and when another may."""

from __future__ import annotations

from broker.cluster.lease import RANK_NS, OwnerLease, StandbyClock

TTL, MARGIN, MARK = 3000, 500, 400


def test_an_owner_acts_until_the_margin_before_its_last_acknowledged_record_is_old() -> None:
    lease = OwnerLease(TTL, MARGIN, MARK, 1000, 1000)
    assert lease.may_act(3499)
    assert not lease.may_act(3500)


def test_sending_renews_nothing_and_an_older_acknowledgement_takes_nothing_back() -> None:
    lease = OwnerLease(TTL, MARGIN, MARK, 1000, 1000)
    lease.sent(2000)
    assert lease.ends_ns == 3500
    lease.acked(2000)
    assert lease.ends_ns == 4500
    lease.acked(1500)
    assert lease.ends_ns == 4500


def test_a_mark_is_due_when_nothing_was_sent_for_a_while() -> None:
    lease = OwnerLease(TTL, MARGIN, MARK, 1000, 1000)
    lease.sent(2000)
    assert lease.mark_due_ns == 2400


def test_a_standby_takes_over_after_the_silence_and_its_rank() -> None:
    for rank in (0, 2):
        clock = StandbyClock(TTL, rank, 0)
        clock.record_seen(1000)
        assert not clock.takeover_due(1000 + TTL + rank * RANK_NS - 1)
        assert clock.takeover_due(1000 + TTL + rank * RANK_NS)


def test_nobody_takes_over_before_the_engine_has_answered_for_a_while() -> None:
    clock = StandbyClock(TTL, 0, 0, grace_ns=TTL // 2)
    clock.engine_answered(TTL - 1, False)
    assert not clock.takeover_due(10 * TTL)
    clock.engine_answered(10 * TTL, True)
    clock.engine_answered(10 * TTL + 1, True)
    assert not clock.takeover_due(10 * TTL + TTL // 2 - 1)
    assert clock.takeover_due(10 * TTL + TTL // 2)


def test_nobody_waits_for_an_owner_that_is_gone_longer_than_its_lease() -> None:
    clock = StandbyClock(TTL, 0, 0, grace_ns=TTL // 2)
    clock.record_seen(1000)
    clock.engine_answered(2000, False, owner_is_gone=True)
    clock.engine_answered(2500, True, owner_is_gone=True)
    assert not clock.takeover_due(1000 + TTL - 1)
    assert clock.takeover_due(1000 + TTL)


def test_a_short_silence_of_the_engine_shortens_no_patience() -> None:
    clock = StandbyClock(TTL, 0, 0, grace_ns=TTL // 10)
    clock.record_seen(1000)
    clock.engine_answered(1001, False)
    clock.engine_answered(1002, True)
    assert not clock.takeover_due(1000 + TTL - 1)
    assert clock.takeover_due(1000 + TTL)


def test_after_a_hand_over_the_named_one_comes_at_once_and_others_by_rank() -> None:
    named, other = StandbyClock(TTL, 1, 0), StandbyClock(TTL, 1, 0)
    named.handed_over(5000, to_me=True)
    other.handed_over(5000, to_me=False)
    assert named.takeover_due(5000)
    assert not other.takeover_due(5000 + 2 * RANK_NS - 1)
    assert other.takeover_due(5000 + 2 * RANK_NS)


def test_the_owners_lease_ends_before_a_standby_takes_over() -> None:
    lease, clock = OwnerLease(TTL, MARGIN, MARK, 0, 0), StandbyClock(TTL, 0, 0)
    lease.acked(700)
    clock.record_seen(700)
    assert lease.ends_ns + MARGIN == clock.due_ns
