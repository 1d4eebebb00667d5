"""A measuring stick for the store: append so many bytes, sync, do it again, and nothing else.

``python -m bench.barelog DIRECTORY --bytes N``: seconds a write and its sync take, in a file that grows
(each sync must record a new size and new blocks as well) and in one whose blocks were written before.
A write and a sync are two calls of the kernel's, so Python is no brake here: 3 µs of 100 or more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

SECONDS = 2.0
FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Bare:
    """Seconds of one write and its sync: the mean, and what one in a hundred took at least."""

    growing_s: float
    filled_s: float
    growing_p99_s: float
    filled_p99_s: float


def beside(directory: Path, nbytes: int, seconds: float = SECONDS) -> Bare:
    """Measures in a process of its own, which sees the disk as whatever is measured beside it does."""
    command = [sys.executable, "-m", "bench.barelog", str(directory)]
    words = ["--bytes", str(nbytes), "--seconds", str(seconds)]
    answer = subprocess.run([*command, *words], check=True, capture_output=True, text=True)
    return Bare(**json.loads(answer.stdout))


def measured(directory: Path, nbytes: int, seconds: float) -> Bare:
    """Both ways in turn, twice, so that a disk that slows down slows both."""
    took_s: dict[bool, list[float]] = {False: [], True: []}
    for filled in (False, True, False, True):
        took_s[filled] += _append(directory / "bare", nbytes, seconds / 2, filled=filled)
    growing, filled_before = took_s[False], took_s[True]
    return Bare(fmean(growing), fmean(filled_before), _p99(growing), _p99(filled_before))


def _p99(took_s: list[float]) -> float:
    return sorted(took_s)[len(took_s) * 99 // 100]


def _append(path: Path, nbytes: int, seconds: float, *, filled: bool) -> list[float]:
    room_bytes = max(FILE_BYTES, 2 * nbytes)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if filled:
            os.pwrite(fd, bytes(room_bytes), 0)
            os.fsync(fd)
        return _write_on(fd, os.urandom(nbytes), seconds, room_bytes if filled else sys.maxsize)
    finally:
        os.close(fd)
        path.unlink()


def _write_on(fd: int, group: bytes, seconds: float, room_bytes: int) -> list[float]:
    """How long each write and its sync took; from the beginning again where there is no room left."""
    took_s: list[float] = []
    at = 0
    now = time.perf_counter()
    deadline = now + seconds
    while now < deadline or not took_s:
        if at + len(group) > room_bytes:
            at = 0
        at += os.pwrite(fd, group, at)
        os.fdatasync(fd)
        before, now = now, time.perf_counter()
        took_s.append(now - before)
    return took_s


def natural(text: str) -> int:
    """A number above 0, or ValueError."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.barelog", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="on the disk to be measured")
    parser.add_argument("--bytes", type=natural, required=True, metavar="N", help="of one write")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help=f"each way ({SECONDS:g})")
    return parser.parse_args(words)


if __name__ == "__main__":
    given = arguments()
    print(json.dumps(asdict(measured(given.directory, given.bytes, given.seconds))))
