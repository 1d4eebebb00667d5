"""Where the cells of a table stand: on as many places as they need, or on those that a terminal has."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

GAP = "  "
# A column of words may be cut to so many places, where a terminal is too narrow.
LEAST = 12


def width(text: str) -> int:
    """How many places of a line it takes: two for a wide character, none for a mark on another."""
    if text.isascii():
        return len(text)
    return sum(map(_places, text))


def _places(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def lines(rows: Sequence[Sequence[str]], right: Sequence[bool], room: int | None = None) -> list[str]:
    """Each row of cells as a line; ``right`` are the columns that are set right.

    Where ``room`` is less than they need, columns of words are cut, and when that isn't enough the last
    columns are left out.
    """
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    if room is not None:
        widths = _fitted(widths, right, room)
    return [_line(row[: len(widths)], right, widths) for row in rows]


def _fitted(widths: Sequence[int], right: Sequence[bool], room: int) -> list[int]:
    """The widths of the columns that fit, the first at least."""
    for shown in range(len(widths), 0, -1):
        found = list(widths[:shown])
        excess = sum(found) + len(GAP) * (shown - 1) - room
        while excess > 0:
            words = [at for at in range(shown) if not right[at] and found[at] > LEAST]
            if not words:
                break
            widest = max(words, key=found.__getitem__)
            found[widest] -= 1
            excess -= 1
        if excess <= 0:
            return found
    return [max(room, 1)]


def _line(cells: Sequence[str], right: Sequence[bool], widths: Sequence[int]) -> str:
    return GAP.join(map(_padded, cells, right, widths)).rstrip()


def _padded(cell: str, right: bool, wide: int) -> str:
    shown = cell if width(cell) <= wide else _cut(cell, wide)
    blank = " " * (wide - width(shown))
    return blank + shown if right else shown + blank


def _cut(cell: str, wide: int) -> str:
    """Its beginning and a sign that there is more."""
    taken = 0
    for at, character in enumerate(cell):
        taken += _places(character)
        if taken > wide - 1:
            return f"{cell[:at]}…"
    return cell
