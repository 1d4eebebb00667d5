"""A writer of a stream's log in a process of its own, to be killed; it says on its output what it knows.

``python -m tests.crash.segmenting DIRECTORY SYNCED SEED``: opens the log, for which ``SYNCED`` is known to be
on disk, appends what the stream's messages are until it is killed, and prints

- ``opened FIRST NEXT``: what was there;
- ``appended NEXT FIRST RECORD``: the offset behind the last append, and the first there is;
- ``synced OFFSET RECORD``: all below is on disk;
- ``full NEXT`` and ``failed NEXT TEXT``: an append that had no room, and one that failed, which is the end.

``RECORD`` is how many bytes the record of writes had then (SHIM_LOG), 0 where none is kept. A message
follows from its offset, so whoever reads the log knows what it should hold.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

from broker.store.faults import SyncFault, is_lack_of_room
from broker.store.segments import SegmentLog
from tests.store.streams import texts, time_of

SEGMENT_BYTES = 40_000
BLOCK_BYTES = 2000
# Whatever the machine, a writer ends by itself.
MOST = 200_000


def say(*words: object) -> None:
    """Print a line in one piece, so that a kill leaves whole ones."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def sync(log: SegmentLog) -> None:
    """Sync once, and say what is on disk."""
    say("synced", log.sync(), recorded())


def recorded() -> int:
    """Return how long the record of writes is."""
    record = os.environ.get("SHIM_LOG")
    return Path(record).stat().st_size if record and Path(record).exists() else 0


def sync_on(log: SegmentLog) -> None:
    """Sync again and again, beside the appends."""
    while not log.failed:
        try:
            sync(log)
        except SyncFault:
            return


def main(directory: str, synced: str, seed: str, most: str = str(MOST), how: str = "") -> None:
    """Write until somebody ends it, or so many messages are there; ``alone``: no sync is beside an append."""
    chance = random.Random(int(seed))
    known = int(synced)
    log = SegmentLog.open(
        Path(directory),
        synced=known if known >= 0 else None,
        segment_bytes=SEGMENT_BYTES,
        block_bytes=BLOCK_BYTES,
    )
    say("opened", log.first_offset, log.next_offset)
    if how != "alone":
        threading.Thread(target=sync_on, args=(log,), daemon=True).start()
    while log.next_offset < int(most):
        step(log, chance, alone=how == "alone")
    log.close()


def step(log: SegmentLog, chance: random.Random, *, alone: bool) -> None:
    """Append once, some of it for the second time; now and then retention, a new segment, a sync."""
    before = log.next_offset
    back = min(chance.randrange(4), before - log.first_offset)
    try:
        log.append_from(before - back, texts(before - back, back + chance.randrange(1, 60)), time_of(before))
        if chance.random() < 0.02:
            log.roll()
        if chance.random() < 0.05:
            log.retain(most_bytes=chance.randrange(1, 8) * SEGMENT_BYTES)
        if alone and chance.random() < 0.1:
            sync(log)
    except OSError as fault:
        if not is_lack_of_room(fault):
            raise
        say("full", log.next_offset)
        return
    except SyncFault as fault:
        say("failed", log.next_offset, fault)
        refused(log)
        sys.exit(0)
    say("appended", log.next_offset, log.first_offset, recorded())


def refused(log: SegmentLog) -> None:
    """See to it that nothing is appended behind a failure."""
    before = log.next_offset
    for call in (lambda: log.append([b"x"], 0), log.roll, log.sync):
        try:
            call()
        except SyncFault:
            continue
        say("worked", before)
    if log.next_offset != before:
        say("worked", log.next_offset)


if __name__ == "__main__":
    main(*sys.argv[1:])
