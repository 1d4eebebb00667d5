"""How several cells are spread over members: who takes a cell over next, and which cell is given to whom.

Pure functions of what members say of themselves. They decide nothing that must be right: the log of a cell
alone says who owns it. Each cell goes to the member that owns the fewest; of several such, to the one with
the largest weight for this cell (rendezvous hashing, Thaler and Ravishankar, 1998), so that members differ in
what they take, and all members think alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class CellSpread:
    """Who owns each cell that has an owner, and for each cell the members that could take it."""

    owners: Mapping[int, str]
    able: Mapping[int, Collection[str]]


@dataclass(frozen=True, slots=True)
class CellMove:
    """A cell that one member gives to another."""

    cell: int
    giver: str
    taker: str


def succession(cell: int, spread: CellSpread) -> list[str]:
    """Return the members that could take a cell when its owner is gone, the first one first.

    All cells of that owner are dealt out in the order of their numbers, as each of its successors does too:
    so that they don't all go to the same.
    """
    gone = spread.owners.get(cell)
    loads = Counter(owner for owner in spread.owners.values() if owner != gone)
    for each in sorted(spread.able):
        if spread.owners.get(each) != gone:
            continue
        order = _ordered(each, [member for member in spread.able[each] if member != gone], loads)
        if each == cell:
            return order
        if order:
            loads[order[0]] += 1
    return []


def next_move(spread: CellSpread) -> CellMove | None:
    """Return the one move that spreads the cells better; None where no member has two more than another.

    One at a time, so that what members know of each other can't be older than the last one.
    """
    loads = Counter(spread.owners.values())
    members = {member for able in spread.able.values() for member in able} | set(loads)
    for giver in sorted(members, key=lambda member: (-loads[member], member)):
        for taker in sorted(members, key=lambda member: (loads[member], member)):
            if loads[giver] - loads[taker] < 2:
                break
            cells = [
                cell
                for cell, owner in sorted(spread.owners.items())
                if owner == giver and taker in spread.able.get(cell, ())
            ]
            if cells:
                return CellMove(max(cells, key=lambda cell: _weight(cell, taker)), giver, taker)
    return None


def _ordered(cell: int, members: Collection[str], loads: Mapping[str, int]) -> list[str]:
    by_weight = sorted(members, key=lambda member: _weight(cell, member), reverse=True)
    return sorted(by_weight, key=lambda member: loads.get(member, 0))


def _weight(cell: int, member: str) -> bytes:
    return blake2b(member.encode(), digest_size=8, key=cell.to_bytes(4, "big")).digest()
