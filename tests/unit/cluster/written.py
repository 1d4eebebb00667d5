"""A log in memory whose engine is sound, and an owner's records by hand."""

from __future__ import annotations

import itertools
import select
import threading
from collections.abc import Iterator

from broker.cluster.log import Acked, AppendRefused, LogEntry, LogUnavailable, Outcome
from broker.cluster.records import GROUPS, START, encode

CELL = 3


class Chain:
    """An owner's records, each chained to the one before."""

    def __init__(self, epoch: int, group: int = 0, digest: bytes = START) -> None:
        self.epoch, self.group, self.digest = epoch, group, digest

    def write(self, kind: int, payload: bytes = b"", part: int = 0, parts: int = 1, of: int = -1) -> bytes:
        """Return the next record; ``of``: the group that a record of a snapshot names."""
        self.group += kind == GROUPS and part == parts - 1
        group = self.group if of < 0 else of
        data, self.digest = encode(kind, CELL, self.epoch, group, self.digest, payload, part, parts)
        return data


class SoundLog:
    """A log that takes a record on its condition and answers at once, unless it is told otherwise."""

    def __init__(self, *records: bytes) -> None:
        self.entries = [LogEntry(position, data) for position, data in enumerate(records, 1)]
        self.heard_ns = 0
        self.is_reachable = True
        # Another position that acknowledgements tell.
        self.lies_by = 0
        self._outcomes: list[Outcome] = []
        # How many outcomes are told at once, in turn.
        self.told: Iterator[int] = itertools.repeat(1000)
        self._lock = threading.Lock()

    def append(self, data: bytes, after: int) -> None:
        """Take a record, or refuse it."""
        with self._lock:
            if after == len(self.entries):
                self.entries.append(LogEntry(after + 1, data))
                self._outcomes.append(Acked(after, after + 1 + self.lies_by))
            else:
                self._outcomes.append(AppendRefused(after))

    def outcomes(self, timeout_s: float, wake: int = -1) -> list[Outcome]:
        """Return all outcomes there are, waiting for the descriptor where there are none."""
        with self._lock:
            most = next(self.told)
            found, self._outcomes = self._outcomes[:most], self._outcomes[most:]
        if not found and wake >= 0:
            select.select([wake], [], [], timeout_s)
        return found

    def read(self, position: int, most_bytes: int) -> list[LogEntry]:
        """Return all there is from a position on."""
        return self.entries[position - 1 :]

    def first(self) -> int:
        """Return the first position."""
        return 1

    def last(self) -> int:
        """Return the last position."""
        if not self.is_reachable:
            raise LogUnavailable("no leader")
        return len(self.entries)

    def nbytes(self) -> int:
        """Return the size."""
        return sum(len(entry.data) for entry in self.entries)

    def trim(self, before: int) -> None:
        """Keep all."""

    def close(self) -> None:
        """Do nothing."""

    def get_body(self, key: str):  # type: ignore[no-untyped-def]
        """Return no body."""
        return iter(())
