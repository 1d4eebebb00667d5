"""Max-min fair dealing of room among those who ask for it.

Source: progressive filling (Bertsekas & Gallager, Data Networks, §6.5.2): raise every holding
together, those that have what they want drop out, until the room is used up.
"""

from __future__ import annotations

from collections.abc import Sequence


def deal(room: int, holdings: Sequence[int], wants: Sequence[int]) -> list[int]:
    """Deal ``room`` credits; the answer says how many each asker gets, never more than it wants.

    Afterwards nobody could be given one more without taking it from one who holds no more than
    that. What doesn't divide goes to those named first.

    1. Order the askers by what they hold.
    2. Raise the lowest ones together to the next holding or want, as far as the room goes.
    3. Who has what it wants drops out; repeat with the rest.
    """
    given = [0] * len(holdings)
    active = sorted((i for i in range(len(holdings)) if wants[i] > 0), key=lambda i: holdings[i])
    while room > 0 and active:
        level = holdings[active[0]] + given[active[0]]
        count = _level_with(active, holdings, given, level)
        step = _step(active, count, holdings, given, wants)
        if step * count > room:
            _spread(active, count, given, room)
            return given
        for i in active[:count]:
            given[i] += step
        room -= step * count
        active = [i for i in active if given[i] < wants[i]]
    return given


def level(room: int, wants: Sequence[int]) -> int:
    """The share that bounds each asker's max-min fair part of ``room``: nobody gets more, and less only who
    wants less; the largest want where there is room for all.
    """
    left = room
    asking = sorted(wants)
    for position, want in enumerate(asking):
        each = left // (len(asking) - position)
        if want > each:
            return each
        left -= want
    return asking[len(asking) - 1] if asking else room


def _level_with(active: Sequence[int], holdings: Sequence[int], given: Sequence[int], level: int) -> int:
    count = 0
    for i in active:
        if holdings[i] + given[i] > level:
            break
        count += 1
    return count


def _step(
    active: Sequence[int], count: int, holdings: Sequence[int], given: Sequence[int], wants: Sequence[int]
) -> int:
    """How far the lowest ``count`` can rise together: to the next one's level or the least want left."""
    step = min(wants[i] - given[i] for i in active[:count])
    if count < len(active):
        following = active[count]
        lowest = active[0]
        step = min(step, holdings[following] + given[following] - holdings[lowest] - given[lowest])
    return step


def _spread(active: Sequence[int], count: int, given: list[int], room: int) -> None:
    """The last room, not enough for a full step: equal parts, the remainder to the first ones."""
    each, rest = divmod(room, count)
    for position, i in enumerate(active[:count]):
        given[i] += each + (1 if position < rest else 0)
