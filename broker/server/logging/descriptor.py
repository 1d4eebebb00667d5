"""Standard error, and whoever reads it: a broker doesn't stand still because a collector of its log does.

A descriptor that is ready takes so much that a piece is written without waiting (a pipe ``PIPE_BUF`` bytes,
pipe(7)). A reader that fell behind is waited for, but a second in ten at most: then lines are left out.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

PIECE_BYTES = select.PIPE_BUF
PATIENCE_S = 1.0
AGAIN_S = 10.0


class Descriptor:
    """``write`` is for one thread at a time. ``now_s`` is a monotonic clock."""

    def __init__(self, fd: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._fd = fd
        self._now_s = now_s
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._until_s = 0.0
        self._patience_s = PATIENCE_S
        # Of the line before only a part was written.
        self._is_torn = False

    def write(self, line: str) -> bool:
        """Whether all of the line was written: not if nobody reads, or there is no room for it."""
        rest = memoryview((("\n" if self._is_torn else "") + line).encode(errors="backslashreplace"))
        begun = False
        while rest and self._has_room():
            try:
                rest = rest[os.write(self._fd, rest[:PIECE_BYTES]) :]
            except OSError:
                break
            begun = True
        if begun:
            self._is_torn = bool(rest)
        return not rest

    def _has_room(self) -> bool:
        if self._poll.poll(0):
            return True
        began_s = self._now_s()
        if began_s >= self._until_s:
            self._until_s, self._patience_s = began_s + AGAIN_S, PATIENCE_S
        if self._patience_s <= 0:
            return False
        ready = self._poll.poll(self._patience_s * 1000)
        self._patience_s -= self._now_s() - began_s
        return bool(ready)
