"""The log stays short: now and then the owner appends everything that is live, and trims the log before it.

A snapshot is made of a copy of the owner's directory, beside the loop, and appended among the groups that
come meanwhile. A member that joins loads it and goes on with the groups behind it.

The newest records stay, whatever a snapshot says. A server of NATS (2.15) syncs what it replicates, and the
files of a stream only with a snapshot of its own, every two to three minutes or each 8 MB. After a power cut
it goes on from that snapshot; where all records up to it were trimmed meanwhile, and what came behind them
isn't synced, it waits for a leader that has them. With all servers in that state there never is one.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from broker.cluster.log import Log, LogUnavailable
from broker.cluster.places import SNAPSHOT_OF
from broker.cluster.records import SNAPSHOT_BEGIN, SNAPSHOT_END, SNAPSHOT_PIECE
from broker.cluster.writer import LogWriter
from broker.errors import OperatorError
from broker.store.cache import CacheStore
from broker.units import MB

log = logging.getLogger("sluice.cluster")

LOOK_S = 2.0
# Records that are so old have been synced by every server that is there, with room to spare.
SETTLED_S = 240.0
# However small `log_size` is: what came within seconds is settled no sooner for that.
LEAST_SETTLED_BYTES = 64 << 20
# The log may take so many times what is live, and `log_size` besides.
LIVE_TIMES = 2
# Pieces of a snapshot that wait to be appended, and how long none of them may be.
MOST_WAITING = 16
WAIT_S = 60.0

Backup = Callable[[Path, Callable[[Exception | None], None]], None]


class SettledLog:
    """How much of the log may go: what is as old as ``seconds``, or has ``nbytes`` of records behind it.

    ``position`` is the last one of those, 0 while none is known.
    """

    def __init__(self, nbytes: int, seconds: float) -> None:
        self.position = 0
        self._nbytes = nbytes
        self._seconds = seconds
        # When somebody looked, the last position then, and all bytes appended until then.
        self._looks: deque[tuple[float, int, int]] = deque()
        self._trimmed_bytes = 0
        self._settled_bytes = 0

    def look(self, now_s: float, last: int, nbytes: int) -> None:
        """Note the last position that the log could begin at, and its bytes."""
        appended = nbytes + self._trimmed_bytes
        self._looks.append((now_s, last, appended))
        while self._looks:
            at_s, position, before = self._looks[0]
            if now_s - at_s < self._seconds and appended - before < self._nbytes:
                break
            self._looks.popleft()
            self.position, self._settled_bytes = position, before

    def trimmed(self, nbytes: int) -> None:
        """So much of the log has gone."""
        self._trimmed_bytes += nbytes

    @property
    def nbytes(self) -> int:
        """How much of the log may go."""
        return max(self._settled_bytes - self._trimmed_bytes, 0)


class LogCleaner:
    """Looks every ``LOOK_S`` whether the log has become too long, on a thread of its own.

    ``live_bytes`` says how much is live, ``backup`` copies the owner's directory; both are called on it. Half
    of ``log_size`` is for what isn't settled yet, the other half for what nobody needs.
    """

    def __init__(
        self,
        engine: Log,
        writer: LogWriter,
        directory: Path,
        live_bytes: Callable[[], int],
        backup: Backup,
        log_size: int,
        settled_s: float = SETTLED_S,
        least_bytes: int = LEAST_SETTLED_BYTES,
    ) -> None:
        self.snapshots = 0
        self.log_bytes = 0
        # Why the log can't be trimmed, as for a lack of room; empty while it can, or needn't be.
        self.fault = ""
        self._log = engine
        self._writer = writer
        self._target = directory.with_name(f"{directory.name}.snapshot")
        self._live_bytes = live_bytes
        self._backup = backup
        self._log_size = log_size
        self._settled = SettledLog(max(log_size // 2, least_bytes), settled_s)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-log-cleaner", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        shutil.rmtree(self._target, ignore_errors=True)
        self._thread.start()

    def stop(self) -> None:
        """Give up what isn't done."""
        self._stopped.set()
        self._thread.join()
        self._log.close()

    def clean(self) -> bool:
        """Append a snapshot and trim the log before it; return whether that was done.

        Raises OperatorError, OSError, TimeoutError.
        """
        if self._settled.position <= self._log.first():
            return False
        try:
            return self._copy() and self._append()
        finally:
            shutil.rmtree(self._target, ignore_errors=True)

    def look(self) -> bool:
        """Notice how long the log is; return whether it is too long. Raises LogUnavailable, TimeoutError."""
        # No other place is one that a log can begin at: a group may be there in part.
        position = self._writer.whole_position
        self.log_bytes = self._log.nbytes()
        self._settled.look(time.monotonic(), position, self.log_bytes)
        spare = self._settled.nbytes - self._log_size // 2
        return spare > 0 and spare > LIVE_TIMES * self._live_bytes()

    def _run(self) -> None:
        said = ""
        while not self._stopped.wait(LOOK_S):
            level, why = logging.INFO, ""
            try:
                if self.look() and self.clean():
                    log.info("the log was %d MB long and is trimmed", self.log_bytes // MB)
            except LogUnavailable as fault:
                why = f"the log can't be trimmed now: {fault}"
            except (OperatorError, OSError, TimeoutError) as fault:
                level, why = logging.WARNING, f"the log can't be trimmed: {fault}"
            self.fault = why if level == logging.WARNING else ""
            if why and why != said:
                log.log(level, "%s", why)
            said = why

    def _copy(self) -> bool:
        """Copy the owner's directory; return whether that was done before this was to stop."""
        done = threading.Event()
        faults: list[Exception | None] = []

        def copied(fault: Exception | None) -> None:
            faults.append(fault)
            done.set()

        self._backup(self._target, copied)
        # It takes as long as it takes: another one can't begin before.
        while not done.wait(LOOK_S):
            if self._stopped.is_set():
                return False
        if faults[0] is not None:
            raise OperatorError(f"the data directory can't be copied: {faults[0]}") from faults[0]
        return True

    def _append(self) -> bool:
        copy = CacheStore.open(self._target)
        try:
            epoch, group = copy.applied
            keep = min(self._writer.position_of(group), self._settled.position)
            if keep <= self._log.first():
                return False
            self._writer.append(SNAPSHOT_BEGIN, group, SNAPSHOT_OF.pack(epoch, group))
            for blob in copy.live_groups():
                if not self._wait(lambda: self._writer.behind_records < MOST_WAITING):
                    return False
                self._writer.append(SNAPSHOT_PIECE, group, blob)
        finally:
            copy.close()
        ended = threading.Event()
        self._writer.append(SNAPSHOT_END, group, b"", ended.set)
        if not self._wait(ended.is_set):
            return False
        before = self._log.nbytes()
        self._log.trim(keep)
        self._settled.trimmed(before - self._log.nbytes())
        self.snapshots += 1
        return True

    def _wait(self, is_over: Callable[[], bool]) -> bool:
        """Wait for something of the writer's; return whether it came, and the writer goes on.

        Raises TimeoutError where the log takes nothing for ``WAIT_S``.
        """
        behind, since_s = -1, 0.0
        while not is_over():
            if self._stopped.wait(0.002) or self._writer.fenced or self._writer.fault:
                return False
            if behind != self._writer.behind_records:
                behind, since_s = self._writer.behind_records, time.monotonic()
            elif time.monotonic() - since_s > WAIT_S:
                raise TimeoutError(f"it has taken nothing of a snapshot for {WAIT_S:g} s")
        return True
