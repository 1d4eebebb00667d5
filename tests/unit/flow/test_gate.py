"""The gate: hysteresis in two units, an operator's hand above both, room for one message when empty."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import constants
from broker.flow.gate import OPEN, STOPPED, Gate

pytestmark = pytest.mark.flow

NOW = 1_000


def gate(
    stop_msgs: int = 0, resume_msgs: int = 0, stop_bytes: int = 0, resume_bytes: int = 0, strict: int = 0
) -> Gate:
    made = Gate("orders")
    made.configure(stop_msgs, resume_msgs, stop_bytes, resume_bytes, strict, NOW)
    return made


def enter(subject: Gate, count: int, size: int = 10) -> list[bool]:
    return [subject.enter(size, NOW) for _ in range(count)]


def leave(subject: Gate, count: int, size: int = 10) -> list[bool]:
    return [subject.leave(size, NOW) for _ in range(count)]


def test_it_starts_open_stops_when_full_and_opens_strictly_below_resume() -> None:
    subject = gate(stop_msgs=10, resume_msgs=5)
    assert subject.state == OPEN
    assert enter(subject, 10) == [False] * 9 + [True]
    assert (subject.state, subject.closed_count, subject.room(1)) == (STOPPED, 1, 0)
    assert leave(subject, 5) == [False] * 5
    assert (subject.depth_msgs, subject.state) == (5, STOPPED)
    assert leave(subject, 1) == [True]
    assert (subject.state, subject.room(1)) == (OPEN, 6)


def test_resume_0_is_equal_to_stop() -> None:
    subject = gate(stop_msgs=10)
    enter(subject, 10)
    assert leave(subject, 1) == [True]


def test_both_units_must_be_below_resume() -> None:
    subject = gate(stop_msgs=10, resume_msgs=8, stop_bytes=100, resume_bytes=50)
    enter(subject, 10, 10)
    leave(subject, 4, 10)
    assert (subject.depth_msgs, subject.depth_bytes, subject.state) == (6, 60, STOPPED)
    leave(subject, 2, 10)
    assert (subject.depth_bytes, subject.state) == (40, OPEN)


def test_bytes_stop_it_when_one_more_message_would_not_fit() -> None:
    subject = gate(stop_bytes=1000, resume_bytes=500, strict=300)
    assert enter(subject, 3, 300) == [False, False, True]


def test_promises_take_room() -> None:
    subject = gate(stop_msgs=100)
    subject.promise(60, 600)
    enter(subject, 10)
    assert subject.room(10) == 30
    subject.promise(-60, -600)
    assert subject.room(10) == 90


def test_an_empty_node_has_room_for_one_message_however_large() -> None:
    subject = gate(stop_bytes=100)
    assert subject.room(10_000) == 1
    subject.promise(1, 10_000)
    assert subject.room(10_000) == 0
    assert subject.excess_msgs() == 0


def test_lowered_thresholds_say_what_to_take_back() -> None:
    subject = gate(stop_msgs=100)
    subject.promise(80, 800)
    enter(subject, 10)
    subject.configure(50, 0, 0, 0, 0, NOW)
    assert subject.excess_msgs() == 40
    subject.configure(5, 0, 0, 0, 0, NOW)
    assert (subject.state, subject.excess_msgs()) == (STOPPED, 80)


def test_what_waits_outside_keeps_none_of_its_own_out() -> None:
    subject = gate(stop_bytes=100, resume_bytes=95)
    subject.park(90)
    assert subject.takes_parked(1000), "where nothing else is there is room for one, however large"
    enter(subject, 1)
    assert (subject.state, subject.room(1)) == (STOPPED, 0)
    assert (subject.takes_parked(90), subject.takes_parked(91)) == (True, False)
    subject.promise(1, 60)
    assert (subject.takes_parked(30), subject.takes_parked(31)) == (True, False)
    subject.park(-90)
    assert (subject.depth_bytes, subject.takes_parked(31)) == (10, False)
    subject.enforce(False, NOW)
    assert subject.takes_parked(1000)


def test_an_operators_hand_is_above_every_threshold() -> None:
    subject = gate()
    assert subject.hold(True, NOW)
    assert (subject.state, subject.room(1)) == (STOPPED, 0)
    subject.enforce(False, NOW)
    assert subject.state == STOPPED
    assert subject.hold(False, NOW)
    assert (subject.state, subject.room(1)) == (OPEN, constants.UNBOUNDED)


def test_lifting_the_hand_from_a_full_node_leaves_it_stopped() -> None:
    subject = gate(stop_msgs=1)
    enter(subject, 1)
    assert not subject.hold(True, NOW)
    assert not subject.hold(False, NOW)
    assert (subject.state, subject.closed_count) == (STOPPED, 1)


def test_not_enforced_means_no_threshold() -> None:
    subject = gate(stop_msgs=1)
    enter(subject, 1)
    assert subject.enforce(False, NOW)
    assert subject.room(1) == constants.UNBOUNDED
    enter(subject, 5)
    assert subject.state == OPEN
    assert subject.enforce(True, NOW)
    assert subject.state == STOPPED


def test_stopped_time_is_counted() -> None:
    subject = gate(stop_msgs=1)
    subject.enter(10, 1_000)
    assert subject.closed_since_ns == 1_000
    subject.leave(10, 6_000)
    assert subject.closed_total_ns == 5_000


THRESHOLDS = st.tuples(st.integers(0, 20), st.integers(0, 100))


@given(
    msgs=THRESHOLDS, size=st.tuples(st.integers(0, 500), st.integers(0, 100)),
    steps=st.lists(st.integers(-1, 60), max_size=120),
)  # fmt: skip
def test_stopped_and_open_as_the_specification_says(
    msgs: tuple[int, int], size: tuple[int, int], steps: list[int]
) -> None:
    """FLOW §2 rule 2 after every step: −1 takes the oldest message out, any other number puts one in."""
    stop_msgs, resume_msgs = msgs[0], msgs[0] * msgs[1] // 100
    stop_bytes, resume_bytes = size[0], size[0] * size[1] // 100
    subject = gate(stop_msgs, resume_msgs, stop_bytes, resume_bytes)
    inside: list[int] = []
    changes = 0
    for step in steps:
        was = subject.closed
        if step >= 0:
            inside.append(step)
            told = subject.enter(step, NOW)
        elif inside:
            told = subject.leave(inside.pop(0), NOW)
        else:
            continue
        assert told == (subject.closed != was)
        changes += subject.closed and not was
        assert (subject.depth_msgs, subject.depth_bytes) == (len(inside), sum(inside))
        below = (not stop_msgs or len(inside) < subject.resume_msgs) and (
            not stop_bytes or sum(inside) < subject.resume_bytes
        )
        above = (stop_msgs and len(inside) >= stop_msgs) or (stop_bytes and sum(inside) > stop_bytes)
        if above:
            assert subject.closed
        elif below and step < 0:
            assert not subject.closed
        elif step < 0:
            assert subject.closed == was
    assert subject.closed_count == changes


def test_raising_the_stop_threshold_opens_at_once() -> None:
    """FLOW §2 rule 9: who waits is let in without a consumer, though depth is above resume."""
    gate = Gate("orders")
    gate.configure(10, 5, 0, 0, 0, 1)
    for _ in range(10):
        gate.enter(1, 2)
    assert gate.closed
    assert not gate.configure(10, 6, 0, 0, 0, 3), "the same stop threshold: still above resume"
    assert gate.configure(12, 5, 0, 0, 0, 4)
    assert gate.room(1) == 2


def test_a_reserve_is_kept_from_all_but_urgent_producers() -> None:
    subject = gate(stop_msgs=100, stop_bytes=10_000)
    subject.reserve(10)
    assert (subject.reserve_msgs, subject.reserve_bytes) == (10, 1000)
    assert (subject.room(100), subject.whole_room(100)) == (90, 100)
    # What urgent producers hold counts against the reserve first.
    subject.promise(10, 1000)
    subject.promise_urgent(10, 1000)
    assert (subject.room(100), subject.whole_room(100)) == (90, 90)
    subject.promise(90, 9000)
    assert (subject.room(100), subject.whole_room(100), subject.excess_msgs()) == (0, 0, 0)
    assert subject.reserve_excess(100) == 0
    subject.reserve(30)
    assert subject.reserve_excess(100) == 20
    subject.reserve(0)
    assert subject.reserve_excess(100) == 0


def test_a_reserve_leaves_room_for_one_message_where_nothing_is() -> None:
    subject = gate(stop_msgs=1, stop_bytes=100)
    subject.reserve(90)
    assert subject.reserve_msgs == 0
    assert subject.room(5000) == 1
    subject.enter(5000, NOW)
    assert subject.room(1) == subject.whole_room(1) == 0


def test_a_depth_that_is_counted_elsewhere_closes_and_opens_it_as_any_other() -> None:
    subject = gate(stop_bytes=1000, resume_bytes=500, strict=100)
    assert [subject.measure(1, nbytes, NOW) for nbytes in (900, 901)] == [False, True]
    assert (subject.state, subject.depth_msgs, subject.depth_bytes, subject.peak_bytes) == (
        STOPPED,
        1,
        901,
        901,
    )
    assert [subject.measure(1, nbytes, NOW) for nbytes in (500, 499)] == [False, True]


def test_a_depth_that_was_too_large_leaves_nothing_behind() -> None:
    subject = gate(stop_bytes=1000, resume_bytes=500, strict=100)
    assert subject.measure(9, 5000, NOW)
    assert not subject.measure(9, 950, NOW, True)
    assert subject.state == STOPPED, "it is full by the other number, too"
    assert subject.measure(9, 800, NOW, True)
    assert subject.state == OPEN


def test_it_learns_the_size_to_expect_of_what_is_counted_elsewhere() -> None:
    subject = gate(stop_bytes=1000)
    for _ in range(200):
        subject.learn(300)
    assert subject.unit_bytes() == 300
