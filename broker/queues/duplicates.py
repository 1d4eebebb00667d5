"""Which messages a node has taken in lately, by message-id, so that a resent one is kept once.

Pure: it is told the time and hands out what is to be noted to have the same window after a restart.
The window is bounded by a count and, where one is set, by time; its places are used in turn, so that
what is noted of it is bounded as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_HEAD = struct.Struct("<QQ")

# What bounds a window that is set by time alone.
MOST_IDS = 1_000_000


class Duplicates:
    """Message-ids, oldest first, each with when it came (wall clock, milliseconds)."""

    def __init__(self, count: int, span_ms: int) -> None:
        self.count = count or MOST_IDS
        self.span_ms = span_ms
        self._seen: dict[bytes, tuple[int, int]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._seen)

    def resize(self, count: int, span_ms: int) -> None:
        """New bounds; what is beyond them is forgotten."""
        self.count = count or MOST_IDS
        self.span_ms = span_ms
        while len(self._seen) > self.count:
            del self._seen[next(iter(self._seen))]

    def knows(self, message_id: bytes, now_ms: int) -> bool:
        """True if this id came within the window."""
        seen = self._seen.get(message_id)
        return seen is not None and (self.span_ms == 0 or now_ms - seen[1] <= self.span_ms)

    def remember(self, message_id: bytes, now_ms: int) -> tuple[int, bytes]:
        """The id came: the place it takes in the window, and what to note there."""
        self._seen.pop(message_id, None)
        self._number += 1
        self._seen[message_id] = (self._number, now_ms)
        while len(self._seen) > self.count or (self._seen and self._is_past(now_ms)):
            del self._seen[next(iter(self._seen))]
        return self._number % self.count, _HEAD.pack(self._number, now_ms) + message_id

    def places(self) -> list[int]:
        """Every place something is noted in."""
        return [number % self.count for number, _ in self._seen.values()]

    def restore(self, noted: Iterable[bytes]) -> None:
        """The window as it was noted, in any order."""
        ids = sorted((*_HEAD.unpack_from(note), note[_HEAD.size :]) for note in noted)
        for number, when_ms, message_id in ids[-self.count :]:
            self._seen.pop(message_id, None)
            self._seen[message_id] = (number, when_ms)
            self._number = number

    def _is_past(self, now_ms: int) -> bool:
        _, when_ms = self._seen[next(iter(self._seen))]
        return self.span_ms > 0 and now_ms - when_ms > self.span_ms
