"""How long to wait before the next try.

Pure: random numbers are handed in, time is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """Pauses that double from ``least_ms`` to ``most_ms``, each shortened by up to half at random, so that
    many who lost the same peer don't come back together. ``draw`` gives numbers from 0 to 1.
    """

    def __init__(self, least_ms: int, most_ms: int, draw: Callable[[], float]) -> None:
        self._least_ms = least_ms
        self._most_ms = most_ms
        self._draw = draw
        self._ceiling_ms = least_ms

    def next_ms(self) -> int:
        """The next pause; the one after it may be twice as long."""
        ceiling_ms = self._ceiling_ms
        self._ceiling_ms = min(ceiling_ms * 2, self._most_ms)
        return max(int(ceiling_ms * (1 - self._draw() / 2)), 1)

    def reset(self) -> None:
        """It works again: begin with the shortest."""
        self._ceiling_ms = self._least_ms
