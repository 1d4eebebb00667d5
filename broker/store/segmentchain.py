"""The segments of a stream in order, as every thread may see them at any time."""

from __future__ import annotations

import bisect
import threading
from collections import OrderedDict

from broker.store.segment import StreamSegment

# Segments that aren't written keep their files open and their indexes in memory, these many of each stream.
OPEN_SEGMENTS = 16


class SegmentChain:
    """One thread changes it, any thread reads it: what it holds is replaced, never changed in place.

    ``next_offset`` is the next message's offset, ``first_offset`` that of the first one there is;
    both are the same where there is none.
    """

    def __init__(self, segments: list[StreamSegment]) -> None:
        self._segments = tuple(segments)
        self._lock = threading.Lock()
        self._used: OrderedDict[int, StreamSegment] = OrderedDict()

    @property
    def segments(self) -> tuple[StreamSegment, ...]:
        """All of them; the last one is written."""
        return self._segments

    @property
    def active(self) -> StreamSegment:
        """The one that is written."""
        return self._segments[-1]

    @property
    def first_offset(self) -> int:
        """The offset of the first message there is, or will be."""
        return self._segments[0].base

    @property
    def next_offset(self) -> int:
        """The offset that the next message will have."""
        return self._segments[-1].end.next_offset

    def push(self, segment: StreamSegment) -> None:
        """Add a segment, which is written from now on."""
        self._segments = (*self._segments, segment)

    def drop_first(self) -> None:
        """Leave the first one out."""
        first = self._segments[0]
        self._segments = self._segments[1:]
        first.is_pinned = False
        with self._lock:
            self._used.pop(first.base, None)
        first.rest()

    def find(self, offset: int) -> StreamSegment | None:
        """Return the segment that has an offset, or will have it; None where it was removed."""
        segments = self._segments
        at = bisect.bisect_right(segments, offset, key=_base) - 1
        return segments[at] if at >= 0 else None

    def touch(self, segment: StreamSegment) -> None:
        """Note that a segment is used: those that weren't for longest let go of their files and indexes."""
        with self._lock:
            self._used[segment.base] = segment
            self._used.move_to_end(segment.base)
            idle = self._used.popitem(last=False)[1] if len(self._used) > OPEN_SEGMENTS else None
        if idle is not None:
            idle.rest()


def _base(segment: StreamSegment) -> int:
    return segment.base
