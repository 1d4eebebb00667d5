"""Windows of sessions between cells: large for a client with one, bounded for one with very many."""

from __future__ import annotations

from broker.amqp.control.foreign import FRAME_BYTES, LEAST_FRAMES, SESSION_FRAMES, frames_of
from broker.config.limits import Limits


def test_a_client_s_first_session_has_the_whole_window_and_every_one_has_some() -> None:
    windows = [frames_of(number) for number in range(1, Limits().max_sessions + 1)]
    assert windows[0] == SESSION_FRAMES
    assert min(windows) == LEAST_FRAMES
    assert windows == sorted(windows, reverse=True)


def test_as_many_sessions_as_a_client_may_have_are_bounded_together() -> None:
    windows = [frames_of(number) for number in range(1, Limits().max_sessions + 1)]
    assert sum(windows) * FRAME_BYTES < 320 << 20


def test_sessions_that_end_make_no_room_for_more_than_there_was() -> None:
    """The i-th of those that are there was begun when there were i at least."""
    there: list[int] = []
    for _ in range(20):
        while len(there) < 64:
            there.append(frames_of(len(there) + 1))
        there.sort()
        del there[:32]
    assert sum(there) <= sum(frames_of(number) for number in range(1, 65))
