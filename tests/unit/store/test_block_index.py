"""The index of blocks: whatever it has, a search begins before what is looked for."""

from __future__ import annotations

import bisect

from hypothesis import given
from hypothesis import strategies as st

from broker.store.blockindex import BlockIndex

STEP = 100


@st.composite
def blocks(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Some blocks of a file: offset, position, latest time."""
    found = []
    offset = position = latest_ms = 0
    for count, nbytes, later_ms in draw(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 250), st.integers(0, 3)), max_size=40)
    ):
        latest_ms += later_ms
        found.append((offset, position, latest_ms))
        offset += count
        position += nbytes
    return found


@given(blocks(), st.data())
def test_a_search_begins_with_the_last_entry_before_it(
    found: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    index = BlockIndex(STEP)
    # In any order, as readers come by.
    parts = data.draw(st.permutations(found)) if found else []
    for mark in parts:
        index.add([mark])
    index.add(found)
    assert len(index) <= len(found)
    wanted = data.draw(st.integers(0, 400))
    place = index.before_offset(wanted)
    last = bisect.bisect_right([each[0] for each in found], wanted) - 1
    if place is None:
        assert last < 0
    else:
        assert place in [each[:2] for each in found[: last + 1]]
        # Never far behind it.
        assert found[last][1] - place[1] < STEP + 250
    time_ms = data.draw(st.integers(0, 100))
    place = index.before_time(time_ms)
    before = [each for each in found if each[2] < time_ms]
    assert place is None or place in [each[:2] for each in before]
    if place is not None:
        assert before[-1][1] - place[1] < STEP + 250


def test_entries_are_a_step_apart() -> None:
    index = BlockIndex(STEP)
    index.add((position // 10, position, position) for position in range(0, 10_000, 10))
    assert len(index) == 100
    assert index.before_offset(555) == (550, 5500)
    assert index.before_time(5501) == (550, 5500)
    assert index.before_time(5500) == (540, 5400)
    assert index.before_time(0) is None
