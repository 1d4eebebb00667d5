"""What goes along with a connection to another cell: its bytes in order, without those that keep it alive."""

from __future__ import annotations

import random
from itertools import pairwise

from broker.amqp.loop.handover import MOST_BYTES, Recorder, Step, without_empty_frames

HEADER = b"AMQP\x00\x01\x00\x00"
EMPTY = bytes.fromhex("0000000802000000")
OPEN = bytes.fromhex("0000000c02000000") + b"open"
BEGIN = bytes.fromhex("0000000d02000000") + b"begin"


def said(steps: tuple[Step, ...]) -> bytes:
    return b"".join(data for is_ours, data in steps if is_ours)


def test_bytes_stay_in_their_order() -> None:
    recorder = Recorder(HEADER)
    recorder.went(HEADER)
    recorder.came(OPEN)
    recorder.went(OPEN)
    assert recorder.steps == [(False, HEADER), (True, HEADER), (False, OPEN), (True, OPEN)]
    assert without_empty_frames(tuple(recorder.steps)) == tuple(recorder.steps)


def test_a_connection_that_says_too_much_is_not_noted() -> None:
    recorder = Recorder(HEADER)
    recorder.came(bytes(MOST_BYTES))
    assert recorder.over
    assert recorder.steps == []
    recorder.came(OPEN)
    assert recorder.steps == []


def test_a_trace_in_its_place_ends_the_notes() -> None:
    recorder = Recorder(HEADER)
    recorder.finish("another order came")
    recorder.came(OPEN)
    assert recorder.over
    assert recorder.steps == [(False, HEADER)]


def test_empty_frames_of_the_client_stay() -> None:
    steps = ((False, HEADER + EMPTY + OPEN), (True, HEADER))
    assert without_empty_frames(steps) == steps


def test_empty_frames_of_ours_are_left_out_wherever_they_are_torn() -> None:
    whole = HEADER + OPEN + EMPTY + EMPTY + BEGIN + EMPTY
    draw = random.Random(3)
    for _ in range(300):
        cuts = sorted(draw.sample(range(1, len(whole)), draw.randint(0, 6)))
        ends = [0, *cuts, len(whole)]
        steps = tuple((True, whole[a:b]) for a, b in pairwise(ends))
        assert said(without_empty_frames(steps)) == HEADER + OPEN + BEGIN


def test_a_frame_that_is_not_all_written_yet_is_compared_as_far_as_it_was() -> None:
    for end in range(len(HEADER + OPEN + BEGIN)):
        steps = ((True, (HEADER + OPEN + BEGIN)[:end]),)
        assert said(without_empty_frames(steps)) == (HEADER + OPEN + BEGIN)[:end]
