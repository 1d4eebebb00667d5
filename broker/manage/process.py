"""The facts of the broker's process; handed to the model, so that the model asks no clock."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from broker import __version__

STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Memory the process occupies; 0 where the system doesn't tell."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


@dataclass(frozen=True, slots=True)
class Process:
    """The broker's process. ``epoch_ns`` is the wall clock, in Unix nanoseconds, at monotonic zero.

    ``memory`` is called when somebody looks; a limit of 0 means none.
    """

    name: str = "sluice"
    version: str = __version__
    pid: int = field(default_factory=os.getpid)
    started_ns: int = 0
    epoch_ns: int = 0
    memory: Callable[[], int] = resident_bytes
    memory_limit_bytes: int = 0
