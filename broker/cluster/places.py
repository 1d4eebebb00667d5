"""A directory's place in a cell's log: behind the group that it has applied last, or behind a snapshot."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from broker.cluster.claims import claimed
from broker.cluster.fold import LogFold
from broker.cluster.log import Log, LogEntry, LogUnavailable
from broker.cluster.records import (
    GROUPS,
    HANDOVER,
    MARK,
    MOST_IN_FLIGHT,
    SNAPSHOT_BEGIN,
    SNAPSHOT_END,
    SNAPSHOT_PIECE,
    START,
    TAKEOVER,
    BrokenRecord,
    Record,
    decode,
)

READ_BYTES = 4 << 20
# Epoch and group that a snapshot is of.
SNAPSHOT_OF = struct.Struct("<QQ")


class LogPlaces:
    """Finds places in a log; ``is_stopped`` ends a long search, ``alive`` is called at each read of one.

    Everything raises LogUnavailable.
    """

    def __init__(
        self,
        engine: Log,
        cell: int,
        is_stopped: Callable[[], bool],
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = engine
        self._cell = cell
        self._is_stopped = is_stopped
        self._alive = alive

    def resumed(self, first: int, last: int, epoch: int, group: int) -> LogFold | None:
        """Return the fold behind the group applied last; None where the log doesn't have it any more."""
        low, high = first, last + 1
        while low < high:
            middle = (low + high) // 2
            record = self._record(middle)
            if record.kind not in (SNAPSHOT_BEGIN, SNAPSHOT_PIECE, SNAPSHOT_END):
                known = record.group
            else:
                known = self._group_near(middle, low)
            if known < group:
                low = middle + 1
            else:
                high = middle
        return self._counted(first, min(low, last), last, epoch, group)

    def end(self, first: int, last: int) -> tuple[int, int]:
        """Return epoch and group of the last record that isn't of a snapshot; zeros without one."""
        for position in range(last, first - 1, -1):
            record = self._record(position)
            if record.kind not in (SNAPSHOT_BEGIN, SNAPSHOT_PIECE, SNAPSHOT_END):
                return record.epoch, record.group
        return 0, 0

    def snapshot(self, first: int, last: int) -> tuple[int, int, Iterator[bytes]] | None:
        """Return the newest snapshot that is whole: its epoch and group, and its pieces; None without one.

        Of an older one the log may lack groups that follow it.
        """
        begin = 0
        of = (0, 0)
        pieces: set[int] = set()
        found: tuple[int, int, Iterator[bytes]] | None = None
        fold = LogFold.before(self._cell, first, self.entry(first).data)
        for entry in self.entries(first, last):
            step = fold.feed(entry.position, entry.data)
            record = step.record
            if not step.counts:
                continue
            if record.kind == SNAPSHOT_BEGIN:
                begin = entry.position
                pieces = set()
                of = SNAPSHOT_OF.unpack(record.payload)
            elif record.kind == SNAPSHOT_PIECE:
                pieces.add(entry.position)
            elif record.kind == TAKEOVER:
                begin = 0
            elif record.kind == SNAPSHOT_END and begin:
                found = of[0], of[1], self.pieces(begin, entry.position, pieces)
                begin = 0
            elif record.kind == GROUPS and first == 1 and not begin and found is None:
                return None
        return found

    def beginning(self, first: int, last: int) -> tuple[str, bool] | None:
        """Return the member that was to begin a log without groups, and whether its directory is there whole.

        None where the log has groups, or no beginning any more.
        """
        if first > 1:
            return None
        member, is_whole = "", False
        fold = LogFold(self._cell)
        for entry in self.entries(first, last):
            step = fold.feed(entry.position, entry.data)
            if step.counts and step.record.kind == GROUPS:
                return None
            if step.counts and step.record.kind == TAKEOVER and not is_whole:
                member, _ = claimed(step.record.payload)
            is_whole = is_whole or (step.counts and step.record.kind == SNAPSHOT_END)
        return member, is_whole

    def pieces(self, begin: int, end: int, positions: set[int]) -> Iterator[bytes]:
        """Return the pieces of a snapshot whose records stand at these positions, each of its parts together.

        Raises BrokenRecord where a part is missing.
        """
        parts: list[bytes] = []
        for entry in self.entries(begin, end):
            if entry.position not in positions:
                continue
            record = decode(entry.position, entry.data)
            if record.part != len(parts):
                raise BrokenRecord(
                    entry.position, f"part {record.part} of a piece stands where part {len(parts)} is next"
                )
            parts.append(record.payload)
            if record.part + 1 == record.parts:
                yield b"".join(parts)
                parts = []

    def entry(self, position: int) -> LogEntry:
        """Return one record."""
        self._alive()
        entries = self._log.read(position, 1)
        if not entries:
            raise LogUnavailable(f"position {position} can't be read yet")
        return entries[0]

    def entries(self, first: int, last: int) -> Iterator[LogEntry]:
        """Return every record from one position to another; where this is to stop before, it raises."""
        while first <= last and not self._is_stopped():
            self._alive()
            entries = self._log.read(first, READ_BYTES)
            if not entries:
                raise LogUnavailable(f"position {first} can't be read yet")
            yield from (entry for entry in entries if entry.position <= last)
            first = entries[-1].position + 1
        if first <= last:
            # Nobody may take what was read until then for all of it.
            raise LogUnavailable("reading the log was given up")

    # --- inside

    def _record(self, position: int) -> Record:
        return decode(position, self.entry(position).data)

    def _counted(self, first: int, near: int, last: int, epoch: int, group: int) -> LogFold | None:
        """Return the fold behind the record with this group that counts; others that don't may have it too.

        ``near`` is where one of them stands. Where the group is one of several in a record, the fold is the
        one before it. None where the group that counts is of another epoch: this directory's owner was
        deposed before the log had the group; and where the log begins behind it, so that others may be
        missing between the two.
        """
        margin = 4 * MOST_IN_FLIGHT
        fold = None
        start = near
        while fold is None and start > first:
            start = max(first, start - margin)
            margin *= 2
            fold = self._anchored(first, start, near, group)
        if fold is None:
            entry = self.entry(first)
            record = decode(first, entry.data)
            if record.kind in (TAKEOVER, MARK, HANDOVER) and record.group >= group:
                # There is no group 0: a snapshot is of it in whichever epoch came to write the beginning.
                is_next = record.group == group and (record.epoch >= epoch or not group)
                return LogFold.behind(self._cell, first, entry.data) if is_next else None
            fold = LogFold.before(self._cell, first, entry.data)
        for entry in self.entries(fold.position + 1, last):
            step = fold.feed(entry.position, entry.data)
            record = step.record
            if step.counts and step.groups and record.group >= group:
                follows = record.group - len(step.groups)
                if follows > group or (follows < group and record.epoch != epoch):
                    return None
                if record.group > group:
                    return LogFold.before(self._cell, entry.position, entry.data)
                return LogFold.behind(self._cell, entry.position, entry.data)
        return None

    def _anchored(self, first: int, start: int, near: int, group: int) -> LogFold | None:
        """Return a fold behind a record in a stretch of the log that certainly counts and is before a group.

        So many records in a row that each follow the one before are more than a deposed owner, or one whose
        records were displaced, can have left there; and take-overs count.
        """
        found = None
        chained = 0
        digest = START
        for entry in self.entries(start, near):
            record = decode(entry.position, entry.data)
            chained = chained + 1 if record.chain == digest else 1
            digest = record.digest
            is_sure = chained >= MOST_IN_FLIGHT or record.kind == TAKEOVER or entry.position == first
            is_whole = record.kind in (TAKEOVER, MARK) or (
                record.kind == GROUPS and record.part + 1 == record.parts
            )
            if is_sure and is_whole and record.group < group:
                found = LogFold.behind(self._cell, entry.position, entry.data)
        return found

    def _group_near(self, position: int, low: int) -> int:
        """Return the group that the log has in whole at a record of a snapshot, which says another."""
        while position > low:
            position -= 1
            record = self._record(position)
            if record.kind not in (SNAPSHOT_BEGIN, SNAPSHOT_PIECE, SNAPSHOT_END):
                return record.group
        return 0
