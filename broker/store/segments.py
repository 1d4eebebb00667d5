"""A stream's messages on disk: a log of segments, appended to at its end and cut at its front.

Appending syncs nothing; the caller has the messages elsewhere until ``sync`` has said that they are on
disk. Appending, rolling and retention belong to one thread; any thread may sync and read.
"""

from __future__ import annotations

import bisect
import logging
import os
import threading
from itertools import takewhile
from pathlib import Path

from broker.store.blocks import StreamMessage, encode
from broker.store.faults import DamagedStore, SyncFault, is_lack_of_room
from broker.store.files import sync_file
from broker.store.port import OffsetGone
from broker.store.segment import SegmentEnd, StreamSegment, bases_in, path_of
from broker.store.segmentchain import SegmentChain
from broker.store.segmentreader import SegmentReader
from broker.store.segmentrecovery import TornTail, recover

log = logging.getLogger("sluice.store")

SEGMENT_BYTES = 64 << 20
# A block has so many bytes of messages, or one message; the index has an entry for about as many.
BLOCK_BYTES = 1 << 16
# The part of a limit that stays whenever a segment is removed because of it.
LEAST_KEPT = 7 / 8


class SegmentLog:
    """The log of one directory. Offsets rise by one and are never used twice.

    ``synced_offset``: all below is on disk. ``torn`` says what was cut off when it was opened.
    ``failed`` says why nothing is appended any more, empty while it works.
    """

    def __init__(
        self, directory: Path, synced: int | None, first_offset: int, segment_bytes: int, block_bytes: int
    ) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes
        # How many messages a segment may have before the next one begins, 0 for any number.
        self.segment_msgs = 0
        self.block_bytes = block_bytes
        self.failed = ""
        # How often names in the directory have changed, and how many of these changes a sync has reached.
        self._names = self._synced_names = 0
        directory.mkdir(parents=True, exist_ok=True)
        found = recover(directory, synced, block_bytes)
        self.torn: TornTail | None = found.torn
        if not found.segments:
            found.segments.append(self._created(first_offset, 0))
        self._chain = SegmentChain(found.segments)
        self.nbytes = sum(each.end.nbytes for each in found.segments)
        self.synced_offset = min(max(found.synced, self.first_offset), self.next_offset)
        # Nobody knows whether the directory's name, and those in it that were found, are on disk.
        self._is_new = self.synced_offset < self.next_offset or not found.synced
        self._names += self._is_new
        for each in found.segments:
            each.is_pinned = each.end.next_offset > self.synced_offset
        self._chain.active.is_pinned = True
        # Removed from the log, and not from the directory yet.
        self._doomed: list[Path] = []
        self._sync_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        synced: int | None = None,
        first_offset: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
        block_bytes: int = BLOCK_BYTES,
    ) -> SegmentLog:
        """Open a directory of segments, or begin one with ``first_offset``.

        ``synced`` is what ``sync`` returned last, kept by the caller: all below must be there, and what is
        behind it may be torn and is cut there. Without it that goes for the last segment alone, and all that
        is found is synced. Where anything else is missing or damaged, DamagedStore says in which file and
        where. OSError; SyncFault where it isn't known whether a cut, or what was found, is on disk.
        """
        return cls(directory, synced, first_offset, segment_bytes, block_bytes)

    @property
    def first_offset(self) -> int:
        """The offset of the first message there is; the next one's where there is none."""
        return self._chain.first_offset

    @property
    def next_offset(self) -> int:
        """The offset that the next message will have."""
        return self._chain.next_offset

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self.next_offset - self.first_offset

    @property
    def segments(self) -> int:
        """How many files there are."""
        return len(self._chain.segments)

    # --- appending

    def append(self, messages: list[bytes], time_ms: int) -> int:
        """Append messages that came at a time (ms since the epoch); return the offset of the first.

        OSError for want of room (``is_lack_of_room``): nothing has happened, and it may be tried again.
        SyncFault after anything else: nothing is appended any more.
        """
        first = self.next_offset
        if self.failed:
            raise SyncFault(self.failed)
        if messages:
            self._append(messages, time_ms)
        return first

    def append_from(self, offset: int, messages: list[bytes], time_ms: int) -> int:
        """Append those of some messages that aren't there, the first of which has an offset; return how many.

        DamagedStore where messages before them are missing; otherwise as ``append``.
        """
        missing = offset + len(messages) - self.next_offset
        if missing <= 0:
            return 0
        if offset > self.next_offset:
            active = self._chain.active
            what = f"messages with offsets from {self.next_offset} to {offset - 1} are missing"
            raise DamagedStore(active.path, active.end.nbytes, what)
        self.append(messages if missing == len(messages) else messages[-missing:], time_ms)
        return missing

    def roll(self) -> None:
        """Begin a new segment, so that retention may remove all before it; as ``append``."""
        if self.failed:
            raise SyncFault(self.failed)
        if self._chain.active.end.nbytes:
            try:
                self._roll()
            except OSError as fault:
                self._judge(fault)
                raise

    def _append(self, messages: list[bytes], time_ms: int) -> None:
        first, _, latest_ms = self._chain.active.end
        latest_ms = max(latest_ms, time_ms)
        data, places = encode(messages, first, time_ms, latest_ms, self.block_bytes)
        try:
            self._write(data, places, first + len(messages), latest_ms)
        except OSError as fault:
            self._judge(fault)
            raise
        self.nbytes += len(data)

    def _write(self, data: bytes, places: list[tuple[int, int]], next_offset: int, latest_ms: int) -> None:
        active = self._chain.active
        if active.end.nbytes and (
            active.end.nbytes + len(data) > self.segment_bytes
            or 0 < self.segment_msgs < next_offset - active.base
        ):
            active = self._roll()
        nbytes = active.end.nbytes
        try:
            active.append(data, places, SegmentEnd(next_offset, nbytes + len(data), latest_ms))
        except OSError as fault:
            if is_lack_of_room(fault):
                self._cut_back(active, nbytes)
            raise

    def _cut_back(self, active: StreamSegment, nbytes: int) -> None:
        """Take away the part of a write that had room, lest something of it stands behind what comes next."""
        try:
            active.cut(nbytes)
        except OSError as fault:
            raise self._fault(f"{active.path}: {fault.strerror}") from fault

    def _roll(self) -> StreamSegment:
        end = self._chain.active.end
        segment = self._created(end.next_offset, end.latest_ms)
        self._chain.push(segment)
        return segment

    def _created(self, base: int, latest_ms: int) -> StreamSegment:
        segment = StreamSegment(self.directory, base, SegmentEnd(base, 0, latest_ms), self.block_bytes)
        segment.create()
        segment.is_pinned = True
        self._names += 1
        return segment

    def _judge(self, fault: OSError) -> None:
        """Return where a fault is a lack of room, which may pass; otherwise SyncFault."""
        if not is_lack_of_room(fault):
            raise self._fault(f"{self.directory}: {fault.strerror}") from fault

    def _fault(self, reason: str) -> SyncFault:
        self.failed = reason
        return SyncFault(reason)

    # --- syncing

    def sync(self) -> int:
        """Have all that was appended before this call on disk; return the offset below which it is.

        SyncFault where that isn't known; then nothing is appended any more. Any thread may call it, one at
        a time gets through.
        """
        with self._sync_lock:
            if self.failed:
                raise SyncFault(self.failed)
            upto = self.next_offset
            names = self._names
            segments = self._pinned()
            try:
                for segment in segments:
                    if segment.end.next_offset > self.synced_offset:
                        os.fdatasync(segment.file().fd)
                if names > self._synced_names:
                    sync_file(self.directory)
                if self._is_new:
                    sync_file(self.directory.parent)
            except OSError as fault:
                raise self._fault(f"{self.directory}: {fault.strerror}") from fault
            self._is_new = False
            self._synced_names = names
            self.synced_offset = max(upto, self.synced_offset)
            self._unpin(segments)
            return self.synced_offset

    def _pinned(self) -> list[StreamSegment]:
        """Return the segments that may have anything that isn't synced: the last ones."""
        return list(takewhile(lambda each: each.is_pinned, reversed(self._chain.segments)))

    def _unpin(self, segments: list[StreamSegment]) -> None:
        """Let files be closed that are synced and aren't written any more."""
        active = self._chain.active
        for segment in segments:
            if segment is not active and segment.end.next_offset <= self.synced_offset:
                segment.is_pinned = False
                self._chain.touch(segment)

    # --- reading

    def read(self, offset: int, most_bytes: int) -> list[StreamMessage]:
        """Return messages from an offset on, as ``SegmentReader.read`` does."""
        return self.reader(offset).read(most_bytes)

    def reader(self, offset: int, *, cold: bool = False) -> SegmentReader:
        """Return a reader that begins at an offset; ``cold`` for what nobody else reads."""
        return SegmentReader(self._chain, offset, cold=cold)

    def find(self, time_ms: int) -> int:
        """Return the offset of the first message that came at a time (ms since the epoch) or later.

        The next message's where there is none. DamagedStore, OSError.
        """
        segments = self._chain.segments
        time_ms = max(time_ms, 0)
        for segment in segments[bisect.bisect_left(segments, time_ms, key=_latest) :]:
            self._chain.touch(segment)
            try:
                offset = segment.find(time_ms)
            except FileNotFoundError:
                if segment.base >= self.first_offset:
                    raise
                continue
            if offset is not None:
                return offset
        return self.next_offset

    def count_bytes(self, offset: int, end: int, most_bytes: int) -> tuple[int, int]:
        """Return (upto, size): the messages from an offset up to, and without, ``upto`` have that size.

        ``upto`` is ``end``, or the end of the segment in which ``most_bytes`` of files were passed. ``end``
        isn't beyond ``next_offset``. OffsetGone, DamagedStore, OSError.
        """
        size = passed = 0
        while offset < end and (passed < most_bytes or not passed):
            segment = self._chain.find(offset)
            if segment is None:
                raise OffsetGone(offset, self.first_offset)
            self._chain.touch(segment)
            upto = min(end, segment.end.next_offset)
            try:
                size += segment.count_bytes(offset, upto)
            except FileNotFoundError:
                if offset >= self.first_offset:
                    raise
                raise OffsetGone(offset, self.first_offset) from None
            passed += segment.end.nbytes
            offset = upto
        return offset, size

    # --- retention

    def retain(
        self,
        most_bytes: int | None = None,
        most_count: int | None = None,
        before_ms: int | None = None,
        held_from: int | None = None,
    ) -> int:
        """Remove segments from the front, and return their bytes.

        They go while all of them have more than ``most_bytes`` or ``most_count`` messages, unless less than
        ``LEAST_KEPT`` of that would be left: of a limit that one segment reaches by itself the newest stay.
        They go, too, while all messages of the first one came before ``before_ms``; nothing from the offset
        ``held_from`` on goes.
        The one that is written stays, and so do those that aren't synced: a power loss may bring a file
        back, and then it has to be whole. A file that can't be removed now goes with the next call, before
        any that comes behind it.
        """
        removed = 0
        while len(self._chain.segments) > 1 and not self.failed:
            first = self._chain.segments[0]
            if held_from is not None and first.end.next_offset > held_from:
                break
            if first.end.next_offset > self.synced_offset or not (
                (most_bytes is not None and _exceeds(self.nbytes, first.end.nbytes, most_bytes))
                or (most_count is not None and _exceeds(self.count, _count_of(first), most_count))
                or (before_ms is not None and first.end.latest_ms < before_ms)
            ):
                break
            self._chain.drop_first()
            self.nbytes -= first.end.nbytes
            removed += first.end.nbytes
            self._doomed.append(first.path)
        self._remove_doomed()
        return removed

    def expire(self, before_ms: int, held_from: int | None = None) -> None:
        """Have what came before a time ready to be removed: in segments that are synced and not written.

        So a stream that nothing comes to keeps nothing for longer. SyncFault.
        """
        if self.failed:
            return
        active = self._chain.active
        if active.end.nbytes and _is_old(active, before_ms, held_from):
            try:
                self.roll()
            except OSError:
                # There may be room for another file later.
                return
        first = self._chain.segments[0]
        if first.end.next_offset > self.synced_offset and _is_old(first, before_ms, held_from):
            self.sync()

    def _remove_doomed(self) -> None:
        """Remove files, the oldest first: those that a crash leaves then follow each other still."""
        while self._doomed and not self.failed:
            try:
                self._doomed[0].unlink(missing_ok=True)
            except OSError as fault:
                log.warning("%s: can't be removed yet: %s", self._doomed[0], fault.strerror)
                return
            self._names += 1
            del self._doomed[0]

    def close(self) -> None:
        """Let go of every file; nothing is synced."""
        for each in self._chain.segments:
            each.is_pinned = False
            each.rest()


def remove(directory: Path) -> None:
    """Remove a log and its directory, whatever state it is in. OSError, and then it may be tried again."""
    if directory.exists():
        for base in bases_in(directory):
            path_of(directory, base).unlink()
        directory.rmdir()


def _is_old(segment: StreamSegment, before_ms: int, held_from: int | None) -> bool:
    end = segment.end
    return (
        end.nbytes > 0 and end.latest_ms < before_ms and (held_from is None or end.next_offset <= held_from)
    )


def _exceeds(total: int, first: int, most: int) -> bool:
    """Whether there is more than a limit lets stay, and enough is left without the first segment."""
    return total > most and total - first >= most * LEAST_KEPT


def _count_of(segment: StreamSegment) -> int:
    return segment.end.next_offset - segment.base


def _latest(segment: StreamSegment) -> int:
    return segment.end.latest_ms
