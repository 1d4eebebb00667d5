"""What the machine has: memory and room on a disk, from which the budgets' defaults are taken."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/")

# Shares of the machine that messages may take where nobody says otherwise: memory beside the broker's
# own needs and its neighbours', a disk that is never filled to the brim.
MEMORY_PERCENT = 40
STORE_PERCENT = 80
TEMP_PERCENT = 50


def memory_bytes(root: Path = ROOT) -> int:
    """Memory this process may use at most: the machine's, or its control group's where that is less."""
    limits = [_physical(root), *(_number(root / file) for file in CGROUP_FILES)]
    return min(limit for limit in limits if limit > 0)


def free_bytes(directory: Path) -> int:
    """Room on the disk that holds a directory, which need not exist yet."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


CGROUP_FILES = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")

# What to go by where the system doesn't say how much memory there is.
UNKNOWN_MEMORY = 1 << 30


def _physical(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return UNKNOWN_MEMORY
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    return found[0] if found else UNKNOWN_MEMORY


def _number(file: Path) -> int:
    """A control group's limit; 0 where there is none (version 2 says "max")."""
    try:
        text = file.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0
