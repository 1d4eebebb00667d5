"""What the machine has: memory and room on a disk, from which the budgets' defaults are taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")

# Shares of the machine that messages may take where nobody says otherwise: memory beside the broker's
# own needs and its neighbours', a disk that is never filled to the brim.
MEMORY_PERCENT = 40
STORE_PERCENT = 80
TEMP_PERCENT = 50


# Where a control group's limit on memory stands, by the controllers /proc/self/cgroup names it with:
# none in version 2, "memory" in version 1.
LIMIT_FILES = {
    "": ("sys/fs/cgroup", "memory.max"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
}


def memory_bytes(root: Path = ROOT) -> int:
    """Memory this process may use at most: the machine's, or that of a control group it is in if less."""
    limits = [_physical(root), *(_number(file) for file in _limit_files(root))]
    return min(limit for limit in limits if limit > 0)


def free_bytes(directory: Path) -> int:
    """Room on the disk that holds a directory, which need not exist yet."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


def taken_bytes(directory: Path) -> int:
    """Disk that a directory's own files take, not those of directories in it; 0 where there is none."""
    try:
        with os.scandir(directory) as entries:
            return sum(_allocated(entry) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _allocated(entry: os.DirEntry[str]) -> int:
    """What a file takes, which is less than its size where it has holes; 0 if it just went away."""
    try:
        return entry.stat().st_blocks * 512 if entry.is_file(follow_symlinks=False) else 0
    except FileNotFoundError:
        return 0


def _limit_files(root: Path) -> Iterator[Path]:
    """The limits of every group this process is in, from its own up to the outermost (cgroups(7)).

    In a container the groups' names may be the host's, and only the outermost one is to be seen.
    """
    for controllers, group in _groups(root):
        if controllers in LIMIT_FILES:
            top, file = LIMIT_FILES[controllers]
            for path in (group, *group.parents):
                yield root / top / path / file


def _groups(root: Path) -> list[tuple[str, Path]]:
    """Lines such as ``0::/system.slice/sluice.service`` or ``4:memory:/a``; the root where none is told."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/", "1:memory:/"]
    fields = [line.split(":", 2) for line in lines]
    return [(each[1], Path(each[2].lstrip("/"))) for each in fields if len(each) == 3]


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
