"""Consumer windows: shut when full, open at the threshold, and one over a whole connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import constants
from broker.flow.window import Shared, Window

pytestmark = pytest.mark.flow


def fill(window: Window) -> int:
    """Send what it has room for."""
    count = window.room()
    for _ in range(count):
        window.sent()
    return count


def test_a_full_window_reopens_at_half_and_takes_half_more() -> None:
    window = Window(1000, 50, None)
    assert fill(window) == 1000
    assert (window.room(), window.shut, window.shut_count) == (0, True, 1)
    for _ in range(499):
        window.settled()
    assert window.room() == 0
    window.settled()
    assert (window.room(), window.unsettled) == (500, 500)
    assert fill(window) == 500
    assert window.shut_count == 2


def test_a_window_that_was_never_full_doesnt_wait_for_the_threshold() -> None:
    window = Window(10, 50, None)
    for _ in range(9):
        window.sent()
    window.settled()
    assert window.room() == 2


@pytest.mark.parametrize("threshold", [0, 1, 50, 99, 100])
def test_every_threshold_opens_in_the_end(threshold: int) -> None:
    window = Window(10, threshold, None)
    fill(window)
    for _ in range(10):
        window.settled()
    assert window.room() == 10


def test_a_limit_of_0_is_none() -> None:
    window = Window(0, 50, None)
    assert window.room() == constants.UNBOUNDED
    window.sent()
    assert window.room() == constants.UNBOUNDED


def test_a_connection_shuts_at_its_limit_and_opens_below_it() -> None:
    shared = Shared(5, lambda window: 0)
    one, other = Window(1000, 50, shared), Window(1000, 50, shared)
    for _ in range(3):
        one.sent()
    assert fill(other) == 2
    assert shared.shut
    assert (one.room(), other.room()) == (0, 0)
    one.settled()
    assert not shared.shut
    assert shared.deal() == []
    assert (one.room(), other.room()) == (1, 1)


def test_a_new_limit_holds_at_once() -> None:
    window = Window(10, 50, None)
    fill(window)
    window.configure(20, 50)
    assert window.room() == 10
    window.configure(5, 50)
    assert window.room() == 0


@given(limit=st.integers(1, 30), threshold=st.integers(0, 100), verbs=st.lists(st.booleans(), max_size=200))
def test_never_more_than_the_limit(limit: int, threshold: int, verbs: list[bool]) -> None:
    window = Window(limit, threshold, None)
    for send in verbs:
        if send and window.room() > 0:
            window.sent()
        elif not send and window.unsettled > 0:
            window.settled()
        assert 0 <= window.unsettled <= limit
        assert window.room() in (0, limit - window.unsettled)
        assert window.room() > 0 or window.unsettled > window.reopen
