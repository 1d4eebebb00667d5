"""Bodies of large messages go to the cell's log before the messages that have them.

The owner's files, as ``LargeFiles`` has them; a durable one counts as finished once the log has it too.

The log has no condition for a body as it has for a record: an owner that was held up and replaced meanwhile
may yet put one there, or take one out. So no body of the next owner's may bear the name of one of its own:

1. Owners of successive epochs give files numbers of different remainders (``OWNERS``).
2. An owner takes those out that nobody names only if it listed them while its lease lasted, when nobody else
   had put any.
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
# Beyond so many take-overs an owner's numbers may be those of one that was held up all the time.
OWNERS = 16
# A message's bits have so much room for the number of its file (``constants.LARGE_SHIFT``).
MOST_NUMBER = (1 << 31) - 1


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

    def keep_only(self, files: Collection[LargeFile], may_act: Callable[[], bool]) -> None:
        """Take all others out of the log: owners that were killed have left them.

        ``may_act`` says on this thread whether the lease lasts; where it doesn't, they stay.
        """
        keys = {body_key(file) for file in files}
        self._asked.put(lambda: self._keep_only(keys, may_act))

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

    def _keep_only(self, keys: set[str], may_act: Callable[[], bool]) -> None:
        try:
            there = self._log.body_keys()
            if not may_act():
                raise LogUnavailable("the lease is over, and the next owner may have put some")
            for key in there - keys:
                self._log.drop_body(key)
        except LogUnavailable as fault:
            log.info("bodies stay in the log until the cell has another owner: %s", fault)


class ReplicatedLargeFiles(LargeFiles):
    """The large messages of the owner of an epoch."""

    def __init__(
        self, directory: Path, post: Post, keep: Collection[int], bodies: BodyStore, epoch: int
    ) -> None:
        super().__init__(directory, post, keep)
        self._bodies = bodies
        self._epoch = epoch

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

    def _number_behind(self, last: int) -> int:
        while True:
            last += (self._epoch - last - 1) % OWNERS + 1
            if last > MOST_NUMBER:
                last = (self._epoch - 1) % OWNERS + 1
            if not self.path(last).exists():
                return last


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as opened:
        while piece := opened.read(BODY_PIECE_BYTES):
            yield piece
