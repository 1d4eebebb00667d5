"""How several cells are spread: by load, then by weight, and alike at all members."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.spread import CellMove, CellSpread, next_move, succession

NAMES = [f"member-{number}" for number in range(6)]


@st.composite
def spreads(draw: st.DrawFn) -> CellSpread:
    """Some cells over some members, any of which may have no owner."""
    members = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    cells = range(draw(st.integers(1, 12)))
    owners = {cell: draw(st.sampled_from([*members, ""])) for cell in cells}
    known = {cell: owner for cell, owner in owners.items() if owner}
    able = {cell: [each for each in members if each != known.get(cell)] for cell in cells}
    return CellSpread(known, able)


def dealt(spread: CellSpread, gone: str) -> Counter[str]:
    """Return how many cells each has once a member is gone, and those that were first have its cells."""
    loads = Counter(owner for owner in spread.owners.values() if owner != gone)
    for cell, owner in spread.owners.items():
        order = succession(cell, spread)
        if owner == gone and order:
            loads[order[0]] += 1
    return loads


@given(spreads())
def test_a_member_that_goes_leaves_its_cells_to_those_with_the_fewest(spread: CellSpread) -> None:
    for gone in set(spread.owners.values()):
        before = Counter(owner for owner in spread.owners.values() if owner != gone)
        others = {each for able in spread.able.values() for each in able} - {gone}
        after = dealt(spread, gone)
        if not others:
            continue
        assert sum(after.values()) == len(spread.owners)
        # No one got a cell while another one had fewer.
        taken = [each for each in others if after[each] > before[each]]
        assert all(after[each] - 1 <= min(after[other] for other in others) for each in taken)


def test_the_cells_of_a_member_of_three_go_to_different_others() -> None:
    for first in range(4):
        owners = {cell: "abc"[(cell + first) % 3] for cell in range(4)}
        able = {cell: [each for each in "abc" if each != owner] for cell, owner in owners.items()}
        for gone in "abc":
            successors = [
                succession(cell, CellSpread(owners, able))[0]
                for cell, owner in owners.items()
                if owner == gone
            ]
            assert len(set(successors)) == len(successors)


def test_cells_without_owners_are_dealt_out_evenly() -> None:
    able = {cell: list("abc") for cell in range(7)}
    found = Counter(succession(cell, CellSpread({}, able))[0] for cell in range(7))
    assert sorted(found.values()) == [2, 2, 3]


def test_every_member_that_could_take_a_cell_has_a_place_in_its_order() -> None:
    spread = CellSpread({0: "a"}, {0: ["b", "c", "d"], 1: ["a"]})
    assert sorted(succession(0, spread)) == ["b", "c", "d"]
    assert succession(5, spread) == []


@given(spreads())
def test_moves_end_with_an_even_spread_and_each_is_needed(spread: CellSpread) -> None:
    owners = dict(spread.owners)
    members = {each for able in spread.able.values() for each in able} | set(owners.values())
    for _ in range(len(owners) + 1):
        able = {cell: [each for each in members if each != owners.get(cell)] for cell in spread.able}
        move = next_move(CellSpread(owners, able))
        if move is None:
            break
        loads = Counter(owners.values())
        assert owners[move.cell] == move.giver
        assert loads[move.giver] - loads[move.taker] >= 2
        owners[move.cell] = move.taker
    else:
        pytest.fail("it goes on for ever")
    loads = Counter(owners.values())
    if owners:
        assert max(loads.values()) - min(loads[each] for each in members) < 2


def test_a_cell_is_given_to_nobody_who_cannot_take_it() -> None:
    owners = dict.fromkeys(range(4), "a")
    assert next_move(CellSpread(owners, dict.fromkeys(range(4), ()))) is None
    assert next_move(CellSpread(owners, {**dict.fromkeys(range(4), ()), 2: ["b"]})) == CellMove(2, "a", "b")
