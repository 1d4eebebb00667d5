"""Where in their messages values stand: sections, and the fields of lists, of all messages together.

A row that isn't laid out as nearly all are, or whose sizes don't fit, is unusual: UnusualError names it, and
``rows`` says what it is. All other rows are well-formed as far as they were walked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from .octets import Bytes, Ints, Mask, Octets


class UnusualError(Exception):
    """``rows``, ascending, have to be read one after the other."""

    def __init__(self, rows: Ints) -> None:
        super().__init__(f"{len(rows)} rows")
        self.rows = rows


class Rank(IntEnum):
    """The order of a message's sections (§3.2). Its body is one of three."""

    HEADER = 0
    DELIVERY_ANNOTATIONS = 1
    ANNOTATIONS = 2
    PROPERTIES = 3
    APPLICATION_PROPERTIES = 4
    BODY = 5
    FOOTER = 6
    # Of a message that was walked to its end.
    END = 7
    # Of one that can't be walked any further.
    LOST = 8


# By the code of a section's descriptor.
_RANKS = np.full(256, Rank.LOST, np.uint8)
_RANKS[0x70:0x79] = [0, 1, 2, 3, 4, 5, 5, 5, 6]
# A constructor of a descriptor, and the only form of it that is walked: 00 53, a smallulong follows.
_DESCRIPTOR = 0x0053
_NULL, _LIST0, _LIST8, _LIST32 = 0x40, 0x45, 0xC0, 0xD0


@dataclass(frozen=True, slots=True)
class Places:
    """A value in each of ``rows``, which ascend: the offsets of its constructor and of its end, and its
    constructor's code."""

    rows: Ints
    at: Ints
    ends: Ints
    codes: Bytes

    def only(self, mask: Mask) -> Places:
        """Those for which ``mask`` is true."""
        if mask.all():
            return self
        return Places(self.rows[mask], self.at[mask], self.ends[mask], self.codes[mask])


def sections(octets: Octets, starts: Ints, ends: Ints) -> list[Places | None]:
    """The values of the messages' sections, by rank. Raises UnusualError."""
    at = starts
    ranks, behind, codes = _peek(octets, at, ends)
    ranks[starts >= ends] = Rank.LOST
    every = np.arange(len(starts))
    found: list[Places | None] = [None] * Rank.END
    for rank in range(Rank.END):
        here = ranks == rank
        if here.all():
            found[rank] = Places(every, at + 3, behind, codes)
            at = behind
            ranks, behind, codes = _peek(octets, at, ends)
        elif here.any():
            rows = np.flatnonzero(here)
            found[rank] = Places(rows, at[rows] + 3, behind[rows], codes[rows])
            at = np.where(here, behind, at)
            ranks[rows], behind[rows], codes[rows] = _peek(octets, at[rows], ends[rows])
    # A section that comes twice or too early is left over.
    _refuse(every, ranks != Rank.END)
    return found


def _peek(octets: Octets, at: Ints, ends: Ints) -> tuple[Bytes, Ints, Bytes]:
    """The rank of the section at each offset, the offset behind it, and the constructor of its value."""
    words = octets.word(at)
    codes = (words & 0xFF).astype(np.uint8)
    behind = octets.behind(at + 3, codes)
    ranks = _RANKS.take((words >> 8) & 0xFF)
    # Where some of what was read lies behind the end, so does the section's.
    ranks[(words >> 16 != _DESCRIPTOR) | (behind > ends)] = Rank.LOST
    ranks[at == ends] = Rank.END
    return ranks, behind, codes


def fields(octets: Octets, lists: Places, wanted: list[bool]) -> list[Places | None]:
    """The fields of lists (§1.6.22) that are wanted and not null, by their index. Raises UnusualError."""
    at, counts = _heads(octets, lists)
    found: list[Places | None] = [None] * len(wanted)
    least, most = int(counts.min(initial=0)), int(counts.max(initial=0))
    for index, is_wanted in enumerate(wanted[:most]):
        codes = octets.byte(at)
        behind = octets.behind(at, codes)
        there = codes != _NULL
        if index >= least:
            there &= counts > index
            behind = np.where(counts > index, behind, at)
        if is_wanted and there.any():
            found[index] = Places(lists.rows, at, behind, codes).only(there)
        at = behind
    _refuse(lists.rows, at > lists.ends)
    return found


def _heads(octets: Octets, lists: Places) -> tuple[Ints, Ints]:
    """The offsets of the first fields, and how many fields there are."""
    at, codes = lists.at, lists.codes
    if codes.size and (codes == _LIST8).all():
        return at + 3, octets.byte(at + 2).astype(np.int64)
    short, long = codes == _LIST8, codes == _LIST32
    _refuse(lists.rows, ~(short | long | (codes == _LIST0)))
    counts = np.where(short, octets.byte(at + 2), np.where(long, octets.word(at + 5), 0))
    return at + np.where(short, 3, np.where(long, 9, 1)), counts


def _refuse(rows: Ints, unusual: Mask) -> None:
    if unusual.any():
        raise UnusualError(rows[unusual])
