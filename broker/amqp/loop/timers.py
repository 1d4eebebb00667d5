"""Calls that are due at a time. Pure: time is an argument, and the owner waits.

A heap; what is dropped leaves its place there until half of all places are such, but nothing that it would
have called for: connections that come and go by the thousand have timers of a minute each.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

# Fewer dropped ones than these are not worth looking for.
FEW = 1000
NEVER_NS = 1 << 63

log = logging.getLogger("sluice.amqp")


class Timer:
    """One call to come; ``function`` is None once it was made or dropped."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[int], None]) -> None:
        self.function: Callable[[int], None] | None = function


class Timers:
    """``first_ns``: when to look next, ``NEVER_NS`` for never."""

    def __init__(self) -> None:
        self.first_ns = NEVER_NS
        self._heap: list[tuple[int, int, Timer]] = []
        self._number = 0
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when_ns: int, function: Callable[[int], None]) -> Timer:
        """Call ``function(now_ns)`` at a time, in the order of times and of being asked for it."""
        timer = Timer(function)
        self._number += 1
        heapq.heappush(self._heap, (when_ns, self._number, timer))
        self.first_ns = self._heap[0][0]
        return timer

    def drop(self, timer: Timer) -> None:
        """It is not to be called; nothing if it was."""
        if timer.function is None:
            return
        timer.function = None
        self._dropped += 1
        if self._dropped > max(FEW, len(self._heap) // 2):
            self._heap = [each for each in self._heap if each[2].function is not None]
            heapq.heapify(self._heap)
            self._dropped = 0
            self._look()

    def run(self, now_ns: int) -> None:
        """All that are due, and those that they ask for and are due as well; a failure ends its own alone."""
        while self._heap and self._heap[0][0] <= now_ns:
            timer = heapq.heappop(self._heap)[2]
            function, timer.function = timer.function, None
            if function is None:
                self._dropped -= 1
                continue
            try:
                function(now_ns)
            except Exception:
                log.exception("a timer failed")
        self._look()

    def _look(self) -> None:
        self.first_ns = self._heap[0][0] if self._heap else NEVER_NS
