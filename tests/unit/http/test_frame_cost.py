"""What frames of a tunnel cost that carry nothing."""

from __future__ import annotations

from broker.http.server.cpu_share import MOST_SAVED_NS, ROUND_NS, CpuShare
from broker.http.server.frame_cost import FRAME_NS, MOST_PAID, PAYING_BYTES, FrameCost

NOW_NS = 1_000_000_000


def busy_share() -> CpuShare:
    return CpuShare(10, lambda: NOW_NS)


def test_frames_that_carry_messages_cost_nothing() -> None:
    share = busy_share()
    toll = FrameCost(share)
    for _ in range(1000):
        toll.carried(10 * PAYING_BYTES)
        assert toll.wait_ns(10, 0, NOW_NS) == 0
    assert share.spent_ns == 0


def test_answers_to_what_went_out_are_paid_for() -> None:
    share = busy_share()
    toll = FrameCost(share)
    toll.carried(500 * PAYING_BYTES)
    assert toll.wait_ns(500, 0, NOW_NS) == 0
    assert share.spent_ns == 0
    toll.wait_ns(1, 0, NOW_NS)
    assert share.spent_ns == FRAME_NS


def test_what_is_paid_beforehand_is_bounded() -> None:
    share = busy_share()
    toll = FrameCost(share)
    toll.carried(100 * MOST_PAID * PAYING_BYTES)
    toll.wait_ns(MOST_PAID + 1, 0, NOW_NS)
    assert share.spent_ns == FRAME_NS


def test_dust_waits_until_the_share_allows_it_and_others_do_not() -> None:
    moved_ns = [NOW_NS]
    share = CpuShare(10, lambda: moved_ns[0])
    dust, messages = FrameCost(share), FrameCost(share)
    assert dust.wait_ns(MOST_SAVED_NS // FRAME_NS + 1, 0, NOW_NS) > 0
    assert dust.wait_ns(0, 0, NOW_NS) > 0
    messages.carried(PAYING_BYTES)
    assert messages.wait_ns(1, 0, NOW_NS) == 0
    moved_ns[0] = later_ns = NOW_NS + 10_000_000
    assert dust.wait_ns(0, 0, later_ns) == 0


def test_what_took_longer_is_charged_as_it_was_and_a_round_is_waited_for() -> None:
    share = busy_share()
    toll = FrameCost(share)
    toll.carried(PAYING_BYTES)
    # Of ten frames one is paid for.
    assert toll.wait_ns(10, 100 * FRAME_NS, NOW_NS) == ROUND_NS
    assert share.spent_ns == 90 * FRAME_NS


def test_where_no_messages_move_dust_waits_for_nothing() -> None:
    assert FrameCost(CpuShare(10, lambda: 0)).wait_ns(1000, 0, NOW_NS) == 0
