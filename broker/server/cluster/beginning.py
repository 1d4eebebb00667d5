"""The beginning of a cell's log: all that a single broker has left in its data directory."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from broker.cluster.bodies import BodyStore
from broker.cluster.places import SNAPSHOT_OF
from broker.cluster.records import SNAPSHOT_BEGIN, SNAPSHOT_END, SNAPSHOT_PIECE
from broker.cluster.writer import LogWriter
from broker.store.cache import CacheStore

log = logging.getLogger("sluice.cluster")


def begin_with(directory: Path, file_bytes: int | None, writer: LogWriter, bodies: BodyStore) -> None:
    """Write a snapshot of a directory as the first records of a log; nothing where the directory is empty.

    It returns before that is done where the writer finds that the cell is another member's.
    """
    with_data = CacheStore.open(directory, file_bytes=file_bytes)
    try:
        if with_data.is_empty:
            return
        log.info("%s: its contents become the beginning of the cell's log", directory)
        there = threading.Semaphore(0)
        for file in with_data.bodies():
            bodies.put(file, lambda fault: there.release())
        for _ in with_data.bodies():
            while not there.acquire(timeout=0.05):
                if writer.fenced or writer.fault:
                    return
        writer.append(SNAPSHOT_BEGIN, 0, SNAPSHOT_OF.pack(1, 0))
        for blob in with_data.live_groups():
            writer.append(SNAPSHOT_PIECE, 0, blob)
            while writer.behind_records > 64 and not writer.fenced and not writer.fault:
                time.sleep(0.002)
        ended = threading.Event()
        writer.append(SNAPSHOT_END, 0, b"", ended.set)
        while not ended.wait(0.05):
            if writer.fenced or writer.fault:
                return
        with_data.begin_log(writer.epoch)
    finally:
        with_data.close()
