"""A cell's log in memory, for tests: `MemoryEngine` has the records, a `MemoryLog` is one user's way to them.

It keeps the port's promises (broker/cluster/log.py). A test may have the engine be ``down``, lose an answer
(``lose``), or keep records from being taken (``withhold``).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from broker.cluster.log import Acked, AppendRefused, LogEntry, LogUnavailable, Outcome, Unknown
from broker.cluster.nats import wait_ready


class MemoryEngine:
    """The records of one cell, and the bodies of its large messages."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.trimmed = 0
        self.bodies: dict[str, list[bytes]] = {}
        self.down = False
        # Of so many records from now on the answer is lost; so many are not taken, without an answer.
        self.lose = 0
        self.withhold = 0
        # A record that is larger ends the connection, and isn't taken either.
        self.most_bytes = 1 << 20
        self.lock = threading.Lock()

    @property
    def last(self) -> int:
        """The last position."""
        return self.trimmed + len(self.records)

    def check(self) -> None:
        """Raise LogUnavailable while it is down."""
        if self.down:
            raise LogUnavailable("the engine is down")


class MemoryLog:
    """One user's way to the engine."""

    def __init__(self, engine: MemoryEngine) -> None:
        self.engine = engine
        self.heard_ns = time.monotonic_ns()
        self.is_closed = False
        self._told: list[Outcome] = []
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def prepare(self) -> None:
        """There is nothing to make."""
        self._check()

    def append(self, data: bytes, after: int) -> None:
        """Take a record, or refuse it."""
        engine = self.engine
        with engine.lock:
            self._told.append(self._outcome(data, after))
        os.eventfd_write(self._bell, 1)

    def _outcome(self, data: bytes, after: int) -> Outcome:
        engine = self.engine
        if engine.down or len(data) > engine.most_bytes:
            return Unknown(after)
        if engine.withhold:
            engine.withhold -= 1
            return Unknown(after)
        if after != engine.last:
            return AppendRefused(after)
        engine.records.append(data)
        if engine.lose:
            engine.lose -= 1
            return Unknown(after)
        return Acked(after, engine.last)

    def outcomes(self, timeout_s: float, wake: int = -1) -> list[Outcome]:
        """Return what came of records sent."""
        if not self._told:
            wait_ready(timeout_s, self._bell, wake)
        with self.engine.lock:
            found, self._told = self._told, []
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        if any(not isinstance(each, Unknown) for each in found):
            self.heard_ns = time.monotonic_ns()
        return found

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        """Return records from a position on; one at least, however large it is."""
        self._check()
        engine = self.engine
        found: list[LogEntry] = []
        nbytes = 0
        with engine.lock:
            for at in range(position, engine.last + 1):
                if at <= engine.trimmed:
                    break
                data = engine.records[at - engine.trimmed - 1]
                if found and nbytes + len(data) > most_bytes:
                    break
                nbytes += len(data)
                found.append(LogEntry(at, data))
        return found

    def first(self) -> int:
        """Return the first position there is."""
        self._check()
        return self.engine.trimmed + 1

    def last(self) -> int:
        """Return the last position."""
        self._check()
        return self.engine.last

    def nbytes(self) -> int:
        """Return what the records take."""
        self._check()
        return sum(map(len, self.engine.records))

    def trim(self, before: int) -> None:
        """Let go of everything before a position."""
        self._check()
        engine = self.engine
        with engine.lock:
            count = min(max(before - 1 - engine.trimmed, 0), len(engine.records))
            del engine.records[:count]
            engine.trimmed += count

    def put_body(self, key: str, pieces: Iterator[bytes]) -> None:
        """Keep a body in the place of the one there was."""
        self._check()
        self.engine.bodies[key] = list(pieces)

    def get_body(self, key: str) -> Iterator[bytes]:
        """Return a body's pieces, none where it isn't there."""
        self._check()
        yield from self.engine.bodies.get(key, [])

    def has_body(self, key: str) -> bool:
        """Return whether a body is there."""
        self._check()
        return key in self.engine.bodies

    def drop_body(self, key: str) -> None:
        """Let go of a body."""
        self._check()
        self.engine.bodies.pop(key, None)

    def body_keys(self) -> set[str]:
        """Return the keys of all bodies there are."""
        self._check()
        return set(self.engine.bodies)

    def close(self) -> None:
        """Let go of the descriptor; nothing the second time."""
        if not self.is_closed:
            self.is_closed = True
            os.close(self._bell)

    def _check(self) -> None:
        self.engine.check()
        self.heard_ns = time.monotonic_ns()
