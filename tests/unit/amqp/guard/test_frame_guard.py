"""Bytes cut into frames: the same whatever pieces they come in, and no more than a turn should do."""

from __future__ import annotations

import pytest

from tests.unit.amqp.guard.test_session_rules import BEGUN, attach, session
from tests.unit.amqp.live import Guarded
from tests.wire.frames import BEGIN, OPEN, frame, performative, transfer

MESSAGES = b"".join(transfer(number) for number in range(5))


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 100, 10_000])
def test_frames_are_followed_in_pieces_of_any_size(size: int) -> None:
    made = session()
    for at in range(0, len(MESSAGES), size):
        made.feed(MESSAGES[at : at + size])
    assert made.guard.transfer_count(0) == 5
    assert made.guard.position() == (0, b"")
    assert made.guard.window_left(0) == 5


def test_the_position_is_within_the_frame_under_way() -> None:
    made = session()
    made.feed(MESSAGES[:5])
    assert made.guard.position() == (0, MESSAGES[:5])
    whole = transfer(0, b"\x00\x53\x75\xb0\x00\x00\x10\x00" + bytes(4096))
    made = session().feed(whole[:1000])
    assert made.guard.position() == (len(whole) - 1000, b"")


def test_an_empty_frame_costs_little() -> None:
    made = session()
    before = made.guard.cost
    made.feed(frame(b""))
    assert made.guard.cost == before + 1


@pytest.mark.parametrize("lie", [frame(b"", size=4), frame(b"", doff=1), frame(b"", doff=9)])
def test_proton_judges_a_frame_whose_sizes_lie(lie: bytes) -> None:
    made = session(lie)
    assert made.guard.lost
    assert made.guard.fault is None


def test_a_frame_of_sasl_is_none_of_a_connections() -> None:
    made = session(performative(OPEN, "x", kind=1))
    assert made.closed is not None
    assert made.closed[0] == "amqp:connection:framing-error"


def test_a_frame_before_the_open_is_small() -> None:
    made = Guarded()
    made.guard.bound(512, 1 << 16, 4, 32, 1000, 10)
    made.feed(performative(OPEN, "x" * 600))
    assert (made.guard.limit, made.closed is not None) == ("max_first_frame_size", True)


@pytest.mark.parametrize("fields", [["x", {"k": [[[[1]]]]}], ["x", list(range(50))]])
def test_values_nest_and_count_within_limits(fields: list[object]) -> None:
    made = Guarded()
    made.guard.bound(1 << 16, 1 << 16, 4, 3, 20, 10)
    made.feed(performative(OPEN, *fields))
    assert (made.guard.limit, made.guard.fault is not None) == ("max_depth", True)


def test_frames_that_cost_much_wait_for_the_next_turn() -> None:
    made = Guarded().open()
    begins = b"".join(performative(BEGIN, None, 0, 9, 9, channel=channel) for channel in range(50))
    made.guard.cost = 0
    made.feed(begins)
    assert made.guard.more
    begun = len(made.io.book.begun)
    assert 10 < begun < 50
    turns = 0
    while made.guard.more:
        made.guard.more, made.guard.cost = False, 0
        made.feed(b"")
        turns += 1
    assert len(made.io.book.begun) == 50
    assert turns <= 50 // begun + 1


def test_nothing_is_read_behind_a_fault() -> None:
    made = session(BEGUN)
    assert made.guard.fault is not None
    made.feed(attach("late", 9), *[transfer(number) for number in range(3)])
    assert made.guard.transfer_count(0) == 0
