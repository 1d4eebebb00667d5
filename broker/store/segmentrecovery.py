"""What a directory of segments holds when it is opened: all that was synced, and of the rest what is whole.

Below an offset that the caller names everything is on disk, and must be there. What was written behind it
is checked block by block, and cut off where the first one isn't whole; whoever has it elsewhere appends
it again.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path

from broker.errors import OperatorError
from broker.store.blocks import BlockWalk
from broker.store.faults import DamagedStore, SyncFault
from broker.store.files import sync_file
from broker.store.segment import SegmentEnd, SegmentFile, StreamSegment, bases_in, closed_end, path_of

log = logging.getLogger("sluice.store")

SCAN_BYTES = 1 << 20
BLOCK_STEP = 1 << 16


@dataclass(frozen=True, slots=True)
class TornTail:
    """The end of a log that wasn't whole and was cut off: where it began, how long it was, and why."""

    file: Path
    position: int
    nbytes: int
    reason: str


@dataclass(slots=True)
class RecoveredSegments:
    """The segments in order, up to which offset they are synced, and what was cut off behind them."""

    segments: list[StreamSegment] = field(default_factory=list)
    synced: int = 0
    torn: TornTail | None = None


@dataclass(frozen=True, slots=True)
class _Scan:
    """A segment read block by block: where the last whole block ends, what is behind it and why."""

    end: SegmentEnd
    file_bytes: int
    marks: list[tuple[int, int, int]]
    fault: str | None


def recover(directory: Path, synced: int | None, step: int) -> RecoveredSegments:
    """Find the segments of a log and cut off its torn tail.

    All below the offset ``synced`` must be there; without it, all that is in any segment but the last, and
    all that is found is synced. DamagedStore, with the file and the byte, where something isn't there, and
    then nothing was changed. OSError; SyncFault where it isn't known whether cut and rest are on disk.
    """
    bases = bases_in(directory)
    if not bases:
        if synced:
            raise DamagedStore(directory, 0, f"the stream was synced up to offset {synced} and has no file")
        return RecoveredSegments()
    floor = bases[-1] if synced is None else synced
    found = _Found(directory, bases, floor, step)
    for number in range(len(bases)):
        if not found.take(number):
            break
    if found.next_offset < floor:
        last = found.segments[-1]
        what = f"the stream ends with offset {found.next_offset}, though it was synced up to {floor}"
        raise DamagedStore(last.path, last.end.nbytes, what)
    torn = found.cut()
    if synced is None:
        floor = found.sync()
    return RecoveredSegments(found.segments, floor, torn)


def check(directory: Path, synced: int) -> int:
    """Read every block of a log, change nothing, and return the next offset.

    DamagedStore where something below the offset ``synced`` isn't there. What is behind it may be torn.
    """
    bases = bases_in(directory) if directory.exists() else []
    following = bases[0] if bases else 0
    path, nbytes, fault = directory, 0, "the stream has no file" if synced and not bases else ""
    for base in bases:
        if fault or base != following:
            break
        scan = _scanned(path_of(directory, base), base, BLOCK_STEP)
        path, nbytes, fault = path_of(directory, base), scan.end.nbytes, scan.fault or ""
        following = scan.end.next_offset
    if following < synced:
        what = fault or f"the stream ends with offset {following}, though it was synced up to {synced}"
        raise DamagedStore(path, nbytes, what)
    return following


class _Found:
    """The segments found so far, in order, each ending where the next one begins."""

    def __init__(self, directory: Path, bases: list[int], floor: int, step: int) -> None:
        self.directory = directory
        self.bases = bases
        self.floor = floor
        self.step = step
        self.segments: list[StreamSegment] = []
        self.next_offset = bases[0]
        self.latest_ms = 0
        self.fault = ""

    def take(self, number: int) -> bool:
        """Take in a segment; False where the log has to be cut behind it."""
        base = self.bases[number]
        following = self.bases[number + 1] if number + 1 < len(self.bases) else None
        end, marks, fault = self._read(base, following)
        if end.next_offset < self.floor and fault is not None:
            raise DamagedStore(path_of(self.directory, base), end.nbytes, fault)
        if end.nbytes == 0:
            end = SegmentEnd(base, 0, self.latest_ms)
        segment = StreamSegment(self.directory, base, end, self.step)
        segment.learn(marks)
        self.segments.append(segment)
        self.next_offset, _, self.latest_ms = end
        self.fault = fault or ""
        return fault is None

    def _read(
        self, base: int, following: int | None
    ) -> tuple[SegmentEnd, list[tuple[int, int, int]], str | None]:
        """Return where a segment ends, marks of its blocks, and why the log ends there, if it does."""
        path = path_of(self.directory, base)
        marks: list[tuple[int, int, int]] = []
        end: SegmentEnd | None = None
        fault: str | None = None
        if following is None or following <= self.floor:
            end = self._synced_end(base, following)
        if end is None:
            scan = _scanned(path, base, self.step)
            end, marks, fault = scan.end, scan.marks, scan.fault
        if following is not None and fault is None and end.next_offset != following:
            fault = f"the segment ends with offset {end.next_offset}, the next one begins with {following}"
            if end.next_offset > following:
                raise DamagedStore(path, end.nbytes, fault)
        return end, marks, fault

    def _synced_end(self, base: int, following: int | None) -> SegmentEnd | None:
        """Return where a segment ends that is synced as a whole; None if that has to be found out."""
        try:
            end = closed_end(self.directory, base)
        except DamagedStore:
            if following is not None:
                raise
            return None
        return end if following is not None or (end.nbytes > 0 and end.next_offset <= self.floor) else None

    def cut(self) -> TornTail | None:
        """Remove what is behind the last whole block, from its end: a crash on the way leaves less to do."""
        last = self.segments[-1]
        behind = self.bases[len(self.segments) :]
        file = last.file()
        nbytes = os.fstat(file.fd).st_size - last.end.nbytes
        if not nbytes and not behind:
            return None
        for base in reversed(behind):
            path = path_of(self.directory, base)
            nbytes += path.stat().st_size
            path.unlink()
        last.cut(last.end.nbytes)
        try:
            if behind:
                sync_file(self.directory)
            os.fdatasync(file.fd)
        except OSError as fault:
            raise SyncFault(f"{last.path}: {fault.strerror}") from fault
        torn = TornTail(last.path, last.end.nbytes, nbytes, self.fault)
        log.warning("%s: byte %d: %s; cut off %d bytes that weren't synced", *_said(torn))
        return torn

    def sync(self) -> int:
        """Have all of it on disk, for a writer that was killed may not have; return the next offset."""
        try:
            for segment in self.segments:
                os.fdatasync(segment.file().fd)
                segment.rest()
            sync_file(self.directory)
        except OSError as fault:
            raise SyncFault(f"{self.directory}: {fault.strerror}") from fault
        return self.next_offset


def _said(torn: TornTail) -> tuple[Path, int, str, int]:
    return torn.file, torn.position, torn.reason, torn.nbytes


def _scanned(path: Path, base: int, step: int) -> _Scan:
    file = SegmentFile(path, os.O_RDONLY)
    size = os.fstat(file.fd).st_size
    walk = BlockWalk(0, base, step=step, whole=True)
    fault = None
    while fault is None and walk.position < size:
        data = file.read(min(max(SCAN_BYTES, walk.need), size - walk.position), walk.position)
        if len(data) < walk.need:
            fault = "the file ends within a block"
            break
        walk.go(data)
        if walk.is_foreign:
            # It may be whole: to cut it off is for no version to decide that can't read it.
            raise OperatorError(
                f"{path}: byte {walk.position}: {walk.fault}: start the version that wrote it"
            )
        fault = walk.fault
    return _Scan(SegmentEnd(walk.next_offset, walk.position, walk.latest_ms), size, walk.marks, fault)
