"""Events as lines of a file that begins anew when it is large, written by a thread of its own.

Who offers lines never waits: they go to a buffer of bounded size. While the disk is full or doesn't
answer, what finds no place there is counted, and a line says how much that was once it can be written.
Nothing is synced: after a power failure the last seconds may be missing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

log = logging.getLogger("sluice.events")

# What may wait for the disk.
MOST_LINES = 50_000
MOST_BYTES = 16 << 20
# How long to let a disk be that refused.
RETRY_S = 1.0
# Lines written at once; a file may be longer than its limit by as much.
BATCH = 1000

# An event's number, its time and its line.
Line = tuple[int, int, bytes]


class EventLog:
    """Writes to ``path``; older files are ``path.1`` to ``path.keep``, the newest first.

    ``lost_line(seq, now_ns, count)`` makes the line that says how many events are missing before it.
    """

    def __init__(
        self, path: Path, max_bytes: int, keep: int, lost_line: Callable[[int, int, int], bytes]
    ) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.keep = keep
        self._lost_line = lost_line
        self._changed = threading.Condition()
        self._lines: deque[Line] = deque()
        self._nbytes = 0
        self._lost = 0
        self._lost_at = (0, 0)
        self._stopping = False
        self._fd = -1
        self._size = 0
        self._failing = False
        self.lost_total = 0
        self._thread = threading.Thread(target=self._run, name="sluice-event-log", daemon=True)
        self._thread.start()

    def offer(self, lines: Sequence[Line]) -> None:
        """Have them written; what there is no place for is lost. Never waits for the disk."""
        with self._changed:
            for line in lines:
                if len(self._lines) >= MOST_LINES or self._nbytes >= MOST_BYTES:
                    self._lost += 1
                    self.lost_total += 1
                    self._lost_at = line[:2]
                    continue
                if self._lost:
                    self._lines.append(self._missing())
                self._lines.append(line)
                self._nbytes += len(line[2])
            self._changed.notify()

    def stop(self, seconds: float) -> None:
        """Write what is there and leave; a disk that doesn't answer in time is left to itself."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(seconds)

    def _missing(self) -> Line:
        """The line that says how many were lost."""
        seq, now_ns = self._lost_at
        count, self._lost = self._lost, 0
        return seq, now_ns, self._lost_line(seq, now_ns, count)

    def _run(self) -> None:
        while batch := self._next():
            try:
                while not self._written(batch):
                    with self._changed:
                        if self._stopping or self._changed.wait_for(lambda: self._stopping, RETRY_S):
                            return
            except Exception:
                log.exception("events could not be written")
        if self._fd >= 0:
            os.close(self._fd)

    def _next(self) -> list[Line]:
        """Lines to be written, once there are some; none when it is time to leave."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._lost or self._stopping)
            if self._lost and not self._lines:
                self._lines.append(self._missing())
            batch = [self._lines.popleft() for _ in range(min(len(self._lines), BATCH))]
            self._nbytes = max(self._nbytes - sum(len(line[2]) for line in batch), 0)
            return batch

    def _written(self, batch: list[Line]) -> bool:
        """Whether the batch is in the file; what was written of a line that didn't fit is taken back."""
        try:
            if self._fd < 0:
                self._open()
            if self._size >= self.max_bytes:
                self._rotate()
            blob = b"".join(line[2] for line in batch)
            done = 0
            while done < len(blob):
                done += os.write(self._fd, blob[done:])
            self._size += len(blob)
        except OSError as fault:
            self._give_up(fault)
            return False
        if self._failing:
            self._failing = False
            log.info("events are written to %s again", self.path)
        return True

    def _give_up(self, fault: OSError) -> None:
        if not self._failing:
            self._failing = True
            log.warning("events can't be written to %s: %s", self.path, fault.strerror)
        if self._fd >= 0:
            try:
                os.ftruncate(self._fd, self._size)
            except OSError:
                os.close(self._fd)
                self._fd = -1

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            self._size = _whole_lines(fd)
            os.ftruncate(fd, self._size)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd

    def _rotate(self) -> None:
        """The file becomes the newest of the older ones, the oldest goes."""
        os.close(self._fd)
        self._fd = -1
        for number in range(self.keep, 0, -1):
            older = self.path if number == 1 else self._older(number - 1)
            if older.exists():
                older.replace(self._older(number))
        if self.keep == 0:
            self.path.unlink()
        self._open()

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _whole_lines(fd: int) -> int:
    """Where the last whole line of a file ends: what a broker that was killed left behind it is no event."""
    size = os.fstat(fd).st_size
    end = size
    while end > 0:
        start = max(end - 65536, 0)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
