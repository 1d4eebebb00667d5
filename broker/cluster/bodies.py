"""Bodies of large messages go to the cell's log before the messages that have them.

The owner's files, as ``LargeFiles`` has them; a durable one counts as finished once the log has it too.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Protocol

from broker.cluster.jetstream import BODY_PIECE_BYTES
from broker.cluster.log import LogUnavailable
from broker.store.largefiles import Finished, LargeFile, LargeFiles, Post, WritingFile, Written, body_key

log = logging.getLogger("sluice.cluster")

RETRY_S = 0.5


class BodyLog(Protocol):
    """Where a cell keeps the bodies of its large messages. Each raises LogUnavailable."""

    def put_body(self, key: str, pieces: Iterator[bytes]) -> None: ...

    def drop_body(self, key: str) -> None: ...

    def body_keys(self) -> set[str]: ...

    def close(self) -> None: ...


class BodyStore:
    """Puts files into the log's store of bodies and takes them out, in turn, on a thread of its own."""

    def __init__(self, engine: BodyLog) -> None:
        self._log = engine
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-bodies", daemon=True)
        self._thread.start()

    def put(self, file: LargeFile, done: Callable[[Exception | None], None]) -> None:
        """Keep a file in the log; ``done`` is called on this thread, with a fault of the file's."""
        self._asked.put(lambda: self._put(file, done))

    def drop(self, file: LargeFile) -> None:
        """Take a file out of the log, where nothing refers to it."""
        self._asked.put(lambda: self._drop(file))

    def keep_only(self, files: Collection[LargeFile]) -> None:
        """Take all others out of the log: owners that were killed have left them."""
        keys = {body_key(file) for file in files}
        self._asked.put(lambda: self._keep_only(keys))

    def stop(self) -> None:
        """Give up whatever isn't done."""
        self._stopped.set()
        self._asked.put(None)
        self._thread.join()
        self._log.close()

    def _run(self) -> None:
        while (task := self._asked.get()) is not None and not self._stopped.is_set():
            task()

    def _put(self, file: LargeFile, done: Callable[[Exception | None], None]) -> None:
        while not self._stopped.is_set():
            try:
                self._log.put_body(body_key(file), _pieces(file.path))
            except LogUnavailable as fault:
                log.info("%s waits for the log: %s", file.path, fault)
                self._stopped.wait(RETRY_S)
                continue
            except OSError as fault:
                done(fault)
                return
            done(None)
            return

    def _drop(self, file: LargeFile) -> None:
        try:
            self._log.drop_body(body_key(file))
        except LogUnavailable as fault:
            log.info("%s stays in the log until the cell has another owner: %s", file.path.name, fault)

    def _keep_only(self, keys: set[str]) -> None:
        try:
            for key in self._log.body_keys() - keys:
                self._log.drop_body(key)
        except LogUnavailable as fault:
            log.info("bodies stay in the log until the cell has another owner: %s", fault)


class ReplicatedLargeFiles(LargeFiles):
    """The owner's large messages."""

    def __init__(self, directory: Path, post: Post, keep: Collection[int], bodies: BodyStore) -> None:
        super().__init__(directory, post, keep)
        self._bodies = bodies

    def begin(self, durable: bool, written: Written, finished: Finished) -> WritingFile:
        if not durable:
            return super().begin(durable, written, finished)

        def replicate(number: int, checksum: int, fault: Exception | None) -> None:
            if fault is not None:
                finished(number, checksum, fault)
                return
            path = self.path(number)
            file = LargeFile(number, path, path.stat().st_size, checksum)
            self._bodies.put(file, lambda late: self.post(lambda: tell(file, late)))

        def tell(file: LargeFile, fault: Exception | None) -> None:
            if writing.is_dropped:
                self._bodies.drop(file)
            else:
                finished(file.number, file.checksum, fault)

        writing = super().begin(durable, written, replicate)
        return writing


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as opened:
        while piece := opened.read(BODY_PIECE_BYTES):
            yield piece
