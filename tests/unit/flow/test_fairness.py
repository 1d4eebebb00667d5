"""Max-min fair dealing, held against dealing one by one to whoever holds least."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.flow.fairness import deal, level

pytestmark = pytest.mark.flow

ASKERS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=10)


@pytest.mark.parametrize(
    ("room", "holdings", "wants", "given_out"),
    [
        (100, [0, 0], [50, 15], [50, 15]),
        (10, [0, 0, 0], [10, 10, 10], [4, 3, 3]),
        (10, [8, 0], [10, 10], [1, 9]),
        (10, [0, 0], [2, 100], [2, 8]),
        (3, [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]),
        (0, [0, 5], [1, 1], [0, 0]),
        (7, [0, 0], [0, 0], [0, 0]),
        (5, [], [], []),
    ],
)
def test_examples(room: int, holdings: list[int], wants: list[int], given_out: list[int]) -> None:
    assert deal(room, holdings, wants) == given_out


@given(room=st.integers(0, 200), askers=ASKERS)
def test_no_more_than_wanted_and_all_the_room_is_used(room: int, askers: list[tuple[int, int]]) -> None:
    holdings, wants = [a for a, _ in askers], [b for _, b in askers]
    shares = deal(room, holdings, wants)
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    assert sum(shares) == min(room, sum(wants))


@given(room=st.integers(0, 200), askers=ASKERS)
def test_nobody_could_have_more_without_taking_it_from_one_with_no_more(
    room: int, askers: list[tuple[int, int]]
) -> None:
    holdings, wants = [a for a, _ in askers], [b for _, b in askers]
    shares = deal(room, holdings, wants)
    totals = [held + share for held, share in zip(holdings, shares, strict=True)]
    for i, total in enumerate(totals):
        if shares[i] < wants[i]:
            assert all(totals[j] - total <= 1 for j in range(len(totals)) if shares[j] > 0)


@given(room=st.integers(0, 200), askers=ASKERS)
def test_the_same_levels_as_dealing_one_by_one(room: int, askers: list[tuple[int, int]]) -> None:
    holdings, wants = [a for a, _ in askers], [b for _, b in askers]
    shares = deal(room, holdings, wants)
    slow = [0] * len(askers)
    for _ in range(min(room, sum(wants))):
        i = min((i for i in range(len(slow)) if slow[i] < wants[i]), key=lambda i: holdings[i] + slow[i])
        slow[i] += 1
    assert sorted(h + s for h, s in zip(holdings, shares, strict=True)) == sorted(
        h + s for h, s in zip(holdings, slow, strict=True)
    )


@given(st.integers(0, 500), st.lists(st.integers(0, 100), min_size=1, max_size=12))
def test_nobody_is_dealt_more_than_the_level(room: int, wants: list[int]) -> None:
    bound = level(room, wants)
    for want, given_ in zip(wants, deal(room, [0] * len(wants), wants), strict=True):
        # What doesn't divide goes to those named first.
        assert min(want, bound) <= given_ <= min(want, bound + 1)


def test_where_there_is_room_for_all_the_level_is_the_largest_want() -> None:
    assert level(100, [10, 60, 0]) == 60
    assert level(100, []) == 100
    assert level(2, [5, 5, 5]) == 0
