"""What else the machine did while something was measured on it: where that was much, it doesn't count."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

# Of one processor, what others may take of it meanwhile, the system itself among them.
MOST_FOREIGN = 0.2
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# Of /proc/stat's first line: all but idle, waiting for disks and what guests were counted for already.
_BUSY = (0, 1, 2, 5, 6, 7)


class Watch:
    """From its making to ``foreign`` nothing should run but this process and ``pids``."""

    def __init__(self, pids: Collection[int]) -> None:
        self._pids = (os.getpid(), *pids)
        self._began_s, self._before_s = time.monotonic(), self._foreign_s()

    def foreign(self) -> float:
        """What others took, as a share of one processor."""
        return (self._foreign_s() - self._before_s) / (time.monotonic() - self._began_s)

    def _foreign_s(self) -> float:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        return sum(int(words[at]) for at in _BUSY) * TICK_S - sum(map(spent_s, self._pids))


def spent_s(pid: int) -> float:
    """The processor time that a process has taken, all its threads together."""
    return (
        sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    )
