"""A reader of a stream: messages in the order of their offsets, from any of them on."""

from __future__ import annotations

import os

from broker.store.blocks import HEAD_BYTES, StreamMessage, decode
from broker.store.faults import DamagedStore
from broker.store.port import OffsetGone
from broker.store.segment import SegmentFile, StreamSegment
from broker.store.segmentchain import SegmentChain

# The most that is read of a file at once; a longer block is read as a whole.
CHUNK_BYTES = 1 << 20
# What heads and lengths may add to the messages that are asked for.
SLACK_BYTES = 4096
# A reader that leaves nothing behind in the page cache drops so much at a time.
DROP_BYTES = 4 << 20


class SegmentReader:
    """Reads on from where it stands: ``offset`` is the next message's. One thread at a time.

    One that is ``cold`` reads what nobody else does, from the beginning of a long stream say: it has a
    descriptor of its own, so that the kernel reads ahead for it, and has the kernel drop the pages that it
    read, of all segments but the one that is written.
    """

    def __init__(self, chain: SegmentChain, offset: int, *, cold: bool = False) -> None:
        self.offset = offset
        self._chain = chain
        self._cold = cold
        self._segment: StreamSegment | None = None
        self._own_file: SegmentFile | None = None
        # Where the block is that comes next, its first offset, and up to where pages were dropped.
        self._position = 0
        self._first = 0
        self._dropped = 0

    def seek(self, offset: int) -> None:
        """Go on from another offset."""
        self._leave()
        self.offset = offset

    def read(self, most_bytes: int) -> list[StreamMessage]:
        """Return messages as (offset, time in ms, bytes), none at the end of the log.

        They have ``most_bytes`` at most, but for a single one that has more. OffsetGone where the next one
        was removed; DamagedStore where it isn't what was written, and then it stands there still. OSError.
        """
        found: list[StreamMessage] = []
        left = most_bytes
        need = HEAD_BYTES
        while left > 0 or not found:
            try:
                data = self._next(left, need)
            except (OffsetGone, DamagedStore):
                if found:
                    break
                raise
            if data is None:
                break
            at, self._first, self.offset, taken, need, fault = decode(
                data, 0, self._first, self.offset, left, found
            )
            self._position += at
            left -= taken
            if fault is not None and not found:
                assert self._segment is not None
                raise DamagedStore(self._segment.path, self._position, fault)
            if not need:
                break
        self._drop(DROP_BYTES)
        return found

    def close(self) -> None:
        """Let go of what is open."""
        self._leave()

    def _next(self, most_bytes: int, need: int) -> bytes | None:
        """Return bytes that begin with the next message's block, ``need`` at least; None at the log's end."""
        segment = self._chain.find(self.offset)
        try:
            if segment is not None:
                if self.offset >= segment.end.next_offset:
                    return None
                if segment is not self._segment:
                    self._leave()
                    self._enter(segment)
                return self._read(segment, most_bytes, need)
        except FileNotFoundError:
            if self.offset >= self._chain.first_offset:
                raise
        raise OffsetGone(self.offset, self._chain.first_offset)

    def _enter(self, segment: StreamSegment) -> None:
        self._chain.touch(segment)
        if self._cold:
            self._own_file = SegmentFile(segment.path, os.O_RDONLY)
            os.posix_fadvise(self._own_file.fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        if self.offset == segment.base:
            self._position, self._first = 0, segment.base
        else:
            self._position, self._first = segment.locate(self.offset)
        self._dropped = self._position
        self._segment = segment

    def _leave(self) -> None:
        self._drop(1)
        self._segment = None
        self._own_file = None

    def _read(self, segment: StreamSegment, most_bytes: int, need: int) -> bytes:
        """Return what is read of a file at once."""
        left = segment.end.nbytes - self._position
        if left < need:
            raise DamagedStore(segment.path, self._position, "the segment ends within a block")
        wanted = min(most_bytes + most_bytes // 4 + SLACK_BYTES, CHUNK_BYTES)
        file = self._own_file or segment.file()
        data = file.read(min(max(need, wanted), left), self._position)
        if len(data) < need:
            raise DamagedStore(segment.path, self._position, "the segment was cut short")
        return data

    def _drop(self, least: int) -> None:
        """Have the kernel drop the pages between the last time and here, if they are so many bytes."""
        file, nbytes = self._own_file, self._position - self._dropped
        if file is not None and nbytes >= least and self._segment is not self._chain.active:
            os.posix_fadvise(file.fd, self._dropped, nbytes, os.POSIX_FADV_DONTNEED)
            self._dropped = self._position
