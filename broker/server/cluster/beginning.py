"""The beginning of a cell's log: all that a single broker has left in its data directory."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from broker.cluster.bodies import BodyStore
from broker.cluster.places import SNAPSHOT_OF
from broker.cluster.records import SNAPSHOT_BEGIN, SNAPSHOT_END, SNAPSHOT_PIECE
from broker.cluster.writer import LogWriter
from broker.store.cache import CacheStore

log = logging.getLogger("sluice.cluster")

# Pieces that wait to be appended.
MOST_WAITING = 64


def begin_with(
    directory: Path,
    file_bytes: int | None,
    writer: LogWriter,
    bodies: BodyStore,
    is_stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Write a snapshot of a directory as the beginning of a log without groups; return whether it is there.

    Nothing is written where the directory is empty, or has followed the log. It returns False before it is
    done where the writer finds that the cell is another member's, and where this member is to stop: then the
    same directory takes over again, and begins anew.
    """

    def is_over() -> bool:
        return bool(writer.fenced or writer.fault or is_stopped())

    with_data = CacheStore.open(directory, file_bytes=file_bytes)
    try:
        if with_data.is_empty or with_data.applied != (0, 0):
            return True
        log.info("%s: its contents become the beginning of the cell's log", directory)
        there = threading.Semaphore(0)
        for file in with_data.bodies():
            bodies.put(file, lambda fault: there.release())
        for _ in with_data.bodies():
            while not there.acquire(timeout=0.05):
                if is_over():
                    return False
        writer.append(SNAPSHOT_BEGIN, 0, SNAPSHOT_OF.pack(writer.epoch, 0))
        for blob in with_data.live_groups():
            writer.append(SNAPSHOT_PIECE, 0, blob)
            while not is_over() and writer.behind_records > MOST_WAITING:
                time.sleep(0.002)
            if is_over():
                return False
        ended = threading.Event()
        writer.append(SNAPSHOT_END, 0, b"", ended.set)
        while not ended.wait(0.05):
            if is_over():
                return False
        with_data.begin_log(writer.epoch)
        return True
    finally:
        with_data.close()
