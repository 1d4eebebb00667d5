"""Memory the process no longer needs goes back to the system.

glibc's allocator keeps what was freed below something still in use: after a burst of a few hundred
megabytes nearly all of it stays resident. ``malloc_trim`` gives back every free page; it takes
milliseconds, so it is called in idle seconds alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

# Less than this is not worth the walk.
SLACK_BYTES = 32 << 20


class Heap:
    """Looked at once a second; trims when the process has grown and nothing happens."""

    def __init__(self, resident: Callable[[], int], trim: Callable[[], object]) -> None:
        self.resident = resident
        self.trim = trim
        self.kept = resident()

    def look(self, idle: bool) -> bool:
        """Give back what is free, if anything much can be; whether it was tried."""
        if not idle:
            return False
        have = self.resident()
        if have < self.kept + SLACK_BYTES:
            self.kept = min(self.kept, have)
            return False
        self.trim()
        self.kept = self.resident()
        return True


def trimmer() -> Callable[[], object]:
    """glibc's malloc_trim(3), or nothing where another allocator or C library is in place."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: None) if trim is None else (lambda: trim(0))
