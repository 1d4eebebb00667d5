"""Measure a stream's log on disk by itself: appends, readers that begin at the front, and one at the tail.

``python -m bench.segments [DIRECTORY]``: a table of medians. Reads from the page cache are a new reader's, of
files that the kernel has in memory; for reads from the disk the kernel was asked to let go of them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from broker.store.segments import SegmentLog

BODY_BYTES = 100
AT_ONCE = 100
READ_BYTES = 1 << 16
TAIL_ROUNDS = 5000


def append(log: SegmentLog, count: int, at_once: int = AT_ONCE) -> tuple[int, float]:
    """Append so many messages, a few at once; return how many, and the processor's seconds."""
    messages = [os.urandom(BODY_BYTES) for _ in range(at_once)]
    used = time.process_time()
    for number in range(count // at_once):
        log.append(messages, 1_700_000_000_000 + number)
    return count // at_once * at_once, time.process_time() - used


def read(log: SegmentLog, *, cold: bool = False) -> tuple[int, float]:
    """Read all there is; return how many messages, and the processor's seconds."""
    reader = log.reader(log.first_offset, cold=cold)
    count = 0
    used = time.process_time()
    while found := reader.read(READ_BYTES):
        count += len(found)
    return count, time.process_time() - used


def let_go(log: SegmentLog) -> None:
    """Have the kernel keep nothing of the log in memory."""
    log.sync()
    for path in log.directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def tail(log: SegmentLog) -> tuple[int, float]:
    """Append and read what was appended, in turns; return how many messages, and the processor's seconds."""
    reader = log.reader(log.next_offset)
    messages = [os.urandom(BODY_BYTES) for _ in range(AT_ONCE)]
    count = 0
    used = time.process_time()
    for number in range(TAIL_ROUNDS):
        log.append(messages, 1_800_000_000_000 + number)
        count += len(reader.read(READ_BYTES))
    return count, time.process_time() - used


def reopen(log: SegmentLog, synced: int | None) -> tuple[int, float]:
    """Open it once more; return 1, and the processor's seconds."""
    used = time.process_time()
    SegmentLog.open(log.directory, synced=synced).close()
    return 1, time.process_time() - used


def seek(log: SegmentLog) -> tuple[int, float]:
    """Read a message of a segment that has no index yet; return 1, and the processor's seconds."""
    again = SegmentLog.open(log.directory, synced=log.next_offset)
    offset = again.first_offset + again.count // 3
    used = time.process_time()
    assert again.read(offset, 1)[0][0] == offset
    used = time.process_time() - used
    again.close()
    return 1, used


def find(log: SegmentLog) -> tuple[int, float]:
    """Find times whose segments have their indexes; return how many, and the processor's seconds."""
    used = time.process_time()
    for number in range(1000):
        log.find(1_700_000_000_000 + number * 7)
    return 1000, time.process_time() - used


def measured(directory: Path, count: int) -> list[tuple[str, float, float]]:
    """Do all of it once; return what was done, how many a second, and microseconds of processor time each."""
    rows: list[tuple[str, float, float]] = []

    def time_it(what: str, work: Callable[[], tuple[int, float]]) -> None:
        began = time.perf_counter()
        done, used_s = work()
        rows.append((what, done / (time.perf_counter() - began), used_s / done * 1e6))

    log = SegmentLog.open(directory / "stream")
    time_it(f"append, {AT_ONCE} at once, msg", lambda: append(log, count))
    began = time.perf_counter()
    nbytes = log.nbytes
    log.sync()
    rows.append(("sync behind it, MB", nbytes / 1e6 / (time.perf_counter() - began), 0))
    time_it("read from the page cache, msg", lambda: read(log))
    let_go(log)
    time_it("read from the disk, leaving no trace, msg", lambda: read(log, cold=True))
    time_it("append and read at the tail, msg", lambda: tail(log))
    time_it("append one by one, msg", lambda: append(log, count // 20, 1))
    time_it("open, the last segment not known to be synced", lambda: reopen(log, None))
    log.sync()
    time_it("open, all of it known to be synced", lambda: reopen(log, log.next_offset))
    time_it("first read within an old segment", lambda: seek(log))
    find(log)
    time_it("find a time", lambda: find(log))
    log.close()
    return rows


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.segments", description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", metavar="DIRECTORY", help="on the disk to be used")
    parser.add_argument("--messages", type=int, default=2_000_000, metavar="N", help="a round (2000000)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of which the medians are (3)")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> None:
    """Print the table."""
    given = arguments(words)
    rounds = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(dir=given.directory) as folder:
            rounds.append(measured(Path(folder), given.messages))
    print(f"{given.messages:,} messages of {BODY_BYTES} B, medians of {given.rounds}\n")
    print("| measured | a second | processor, µs each |\n|---|---:|---:|")
    for same in zip(*rounds, strict=True):
        rate, used_us = (median(row[n] for row in same) for n in (1, 2))
        print(f"| {same[0][0]} | {rate:,.0f} | {f'{used_us:,.3g}' if used_us else ''} |")


if __name__ == "__main__":
    main()
