"""What can be seen of a broker from outside: its memory, its Java heap, and the flushes of its disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from bench.contenders import BenchError, Running
from broker.client.load.load import Usage

HEAP_S = 60.0
SETTLE_S, STILL_S, STILL_BYTES = 6.0, 1.0, 1 << 20
FLUSHES = 15  # the column of /sys/dev/block/*/stat (Documentation/block/stat.rst)


def resident(running: Running) -> int:
    """Bytes of memory the broker's process has."""
    usage = Usage.of(running.pid)
    if usage is None:
        raise BenchError("it ended by itself")
    return usage.rss_bytes


def settled(running: Running) -> int:
    """The same once it stopped changing: a Java heap is given back for a while after a collection."""
    last, until = resident(running), time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        time.sleep(STILL_S)
        now = resident(running)
        if abs(now - last) < STILL_BYTES:
            return now
        last = now
    return last


def live_heap(running: Running) -> int | None:
    """Bytes of objects that are alive in a Java broker after a collection; None of one that isn't."""
    if Path(f"/proc/{running.pid}/comm").read_text().strip() != "java" or shutil.which("jcmd") is None:
        return None
    command = ["jcmd", str(running.pid), "GC.class_histogram"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=HEAP_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    return total_of(ended.stdout)


def total_of(histogram: str) -> int | None:
    """The bytes in a class histogram's last line."""
    found = re.search(r"^Total\s+\d+\s+(\d+)", histogram, re.MULTILINE)
    return int(found.group(1)) if found else None


def flushes(folder: Path) -> int | None:
    """Flushes the disk under ``folder`` has done so far, for whomever; None where that can't be told."""
    device = folder.stat().st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    try:
        return int(stat.read_text().split()[FLUSHES])
    except (OSError, IndexError):
        return None
