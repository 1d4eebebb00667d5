"""Memory the process no longer needs goes back to the system.

glibc's allocator keeps what was freed below something still in use: after a burst of a few hundred
megabytes nearly all of it stays resident. ``malloc_trim`` gives back every free page. Connections that
are closed wait for Python's collector, which runs rarely, with all they hold in Proton: it goes first.
Both take milliseconds, so they run in quiet seconds alone.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

# Seconds of quiet between two looks, at most: what is let go of without a message moving is found by then.
RARELY = 64


class Heap:
    """Looked at once a second; ``trim`` gives memory back, in the 1st, 2nd, 4th, … second of quiet."""

    def __init__(self, trim: Callable[[], object]) -> None:
        self.trim = trim
        self.quiet_seconds = 0

    def look(self, quiet: bool) -> None:
        """A second is over, and hardly a message moved in it or many did."""
        self.quiet_seconds = self.quiet_seconds + 1 if quiet else 0
        seconds = self.quiet_seconds
        if seconds and (seconds % RARELY == 0 or (seconds < RARELY and seconds & (seconds - 1) == 0)):
            self.trim()


def give_back() -> None:
    """A collection, and glibc's malloc_trim(3) where the C library has it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
