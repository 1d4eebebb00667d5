"""Which messages a node has taken in lately, by message-id, so that a resent one is kept once.

Pure: it is told the time and hands out what is to be noted to have the same window after a restart. Each id
has a place for its note, and gives it back when it is forgotten. The window is bounded by a count and, where
one is set, by time; so is what is noted of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_HEAD = struct.Struct("<QQ")

# What bounds a window that is set by time alone.
MOST_IDS = 1_000_000
# So many ids whose time is over are forgotten at a time.
MOST_GONE = 100


class Duplicates:
    """Message-ids, oldest first, each with its place, its number and when it came (wall clock, ms)."""

    def __init__(self, count: int, span_ms: int) -> None:
        self.count = count or MOST_IDS
        self.span_ms = span_ms
        self._seen: dict[bytes, tuple[int, int, int]] = {}
        self._number = 0
        # Places below `_places` that no id has.
        self._free: list[int] = []
        self._places = 0

    def __len__(self) -> int:
        return len(self._seen)

    def resize(self, count: int, span_ms: int) -> list[int]:
        """Set new bounds, and forget ids beyond them; return their places, where nothing is to be noted."""
        self.count = count or MOST_IDS
        self.span_ms = span_ms
        return self._forget(self.count)

    def knows(self, message_id: bytes, now_ms: int) -> bool:
        """True if this id came within the window."""
        seen = self._seen.get(message_id)
        return seen is not None and (self.span_ms == 0 or now_ms - seen[2] <= self.span_ms)

    def remember(self, message_id: bytes, now_ms: int) -> tuple[int, bytes, list[int]]:
        """The id came: the place it takes in the window, what to note there, and the places where nothing is
        to be noted any more.
        """
        self._leave(message_id)
        gone = self._forget(self.count - 1)
        while self._seen and len(gone) < MOST_GONE and self._is_past(now_ms):
            gone.append(self._leave(next(iter(self._seen))))
        self._number += 1
        place = self._take_place()
        self._seen[message_id] = (place, self._number, now_ms)
        if place in gone:
            gone.remove(place)
        return place, _HEAD.pack(self._number, now_ms) + message_id, gone

    def places(self) -> list[int]:
        """Every place something is noted in."""
        return [place for place, _, _ in self._seen.values()]

    def ids(self) -> list[tuple[bytes, int]]:
        """Return the ids, oldest first, each with when it came (wall clock, ms)."""
        return [(message_id, when_ms) for message_id, (_, _, when_ms) in self._seen.items()]

    def restore(self, noted: Iterable[tuple[int, bytes]]) -> list[int]:
        """Take over the window as it was noted, by place and in any order; return the places of what is
        beyond its count, where nothing is to be noted.
        """
        ids = sorted((*_HEAD.unpack_from(note), note[_HEAD.size :], place) for place, note in noted)
        gone: list[int] = []
        for number, when_ms, message_id, place in ids:
            if message_id in self._seen:
                gone.append(self._leave(message_id))
            self._seen[message_id] = (place, number, when_ms)
            self._number = number
        gone += self._forget(self.count)
        taken = set(self.places())
        self._places = max(taken, default=-1) + 1
        self._free = [place for place in range(self._places) if place not in taken]
        return gone

    def _take_place(self) -> int:
        if self._free:
            return self._free.pop()
        self._places += 1
        return self._places - 1

    def _leave(self, message_id: bytes) -> int:
        """Forget an id, and return its place; -1 for one that isn't known."""
        seen = self._seen.pop(message_id, None)
        if seen is None:
            return -1
        self._free.append(seen[0])
        return seen[0]

    def _forget(self, most: int) -> list[int]:
        """Forget the oldest ids beyond so many, and return their places."""
        gone: list[int] = []
        while len(self._seen) > most:
            gone.append(self._leave(next(iter(self._seen))))
        return gone

    def _is_past(self, now_ms: int) -> bool:
        when_ms = self._seen[next(iter(self._seen))][2]
        return self.span_ms > 0 and now_ms - when_ms > self.span_ms
