"""Where some of a file's blocks are, by offset and by time: about one entry for each 64 KB.

It knows neither files nor blocks. Entries may be missing, which makes a search longer and never wrong.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections.abc import Iterable


class BlockIndex:
    """Blocks ``step`` bytes apart or more; each has an offset, a position and the latest time up to its end.

    Any thread may add and search.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self._lock = threading.Lock()
        self._offsets = array("Q")
        self._positions = array("Q")
        self._times = array("Q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, marks: Iterable[tuple[int, int, int]]) -> None:
        """Take in (offset, position, latest time) of blocks, but those near to one that it has."""
        with self._lock:
            for offset, position, latest_ms in marks:
                at = bisect.bisect_right(self._positions, position)
                if at and position - self._positions[at - 1] < self.step:
                    continue
                self._offsets.insert(at, offset)
                self._positions.insert(at, position)
                self._times.insert(at, latest_ms)

    def before_offset(self, offset: int) -> tuple[int, int] | None:
        """Return (offset, position) of the last entry that isn't beyond an offset; None if there is none."""
        with self._lock:
            return self._entry(bisect.bisect_right(self._offsets, offset) - 1)

    def before_time(self, time_ms: int) -> tuple[int, int] | None:
        """Return (offset, position) of the last entry whose messages, and all before, came before a time."""
        with self._lock:
            return self._entry(bisect.bisect_left(self._times, time_ms) - 1)

    def _entry(self, at: int) -> tuple[int, int] | None:
        return (self._offsets[at], self._positions[at]) if at >= 0 else None
