"""One segment of a stream: a file of blocks, named by the first offset in it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import NamedTuple

from broker.store.blockindex import BlockIndex
from broker.store.blocks import (
    HEAD_BYTES,
    MOST_BLOCK_BYTES,
    TAIL_BYTES,
    BlockWalk,
    StreamMessage,
    decode,
    end_of,
    tail_size,
)
from broker.store.faults import DamagedStore

SUFFIX = ".segment"
_NAME = re.compile(r"(\d{20})\.segment")
# A search reads the heads of blocks, which are mostly longer than this.
WINDOW_BYTES = 4096


class SegmentEnd(NamedTuple):
    """Where a segment ends: the next offset, its size in bytes, the latest time of a message up to there."""

    next_offset: int
    nbytes: int
    latest_ms: int


class SegmentFile:
    """An open file, closed when nobody refers to it: a reader may have one that the log has removed."""

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        self._closed = True
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self._closed = False

    def __del__(self) -> None:
        if not self._closed:
            os.close(self.fd)

    def read(self, nbytes: int, position: int) -> bytes:
        """Return so many bytes, fewer only at the file's end. OSError."""
        data = os.pread(self.fd, nbytes, position)
        while 0 < len(data) < nbytes and (
            more := os.pread(self.fd, nbytes - len(data), position + len(data))
        ):
            data += more
        return data

    def write(self, data: bytes, position: int) -> None:
        """Write all of it. OSError, after which any part may be there."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self.fd, view, position)
            if written == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            view = view[written:]
            position += written


class StreamSegment:
    """A segment; ``end`` is replaced as a whole, so any thread may read what is before it.

    ``is_pinned`` while its file has to stay open: it is written, or has blocks that aren't synced.
    """

    def __init__(self, directory: Path, base: int, end: SegmentEnd, step: int) -> None:
        self.path = path_of(directory, base)
        self.base = base
        self.end = end
        self.is_pinned = False
        self._step = step
        self._index = BlockIndex(step)
        self._file: SegmentFile | None = None

    def create(self) -> None:
        """Make the file, empty. OSError, and then there is none."""
        self._file = SegmentFile(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def file(self) -> SegmentFile:
        """Return the open file. OSError where it can't be opened."""
        file = self._file
        if file is None:
            file = self._file = SegmentFile(self.path, os.O_RDWR)
        return file

    def rest(self) -> None:
        """Let go of the file and of the index, which are had again when they are needed."""
        if not self.is_pinned:
            self._file = None
            self._index = BlockIndex(self._step)

    @property
    def index_entries(self) -> int:
        """How many blocks the index has."""
        return len(self._index)

    def append(self, data: bytes, places: list[tuple[int, int]], end: SegmentEnd) -> None:
        """Write blocks behind the others; ``places`` are (offset, position in the data). OSError."""
        begin = self.end.nbytes
        self.file().write(data, begin)
        self._index.add((offset, begin + at, end.latest_ms) for offset, at in places)
        self.end = end

    def learn(self, marks: list[tuple[int, int, int]]) -> None:
        """Take in where some of the blocks are."""
        self._index.add(marks)

    def cut(self, nbytes: int) -> None:
        """Make the file so long. OSError."""
        os.ftruncate(self.file().fd, nbytes)

    def locate(self, offset: int) -> tuple[int, int]:
        """Return (position, first offset) of the block that has an offset of this segment.

        DamagedStore, OSError.
        """
        first, position = self._index.before_offset(offset) or (self.base, 0)
        walk = BlockWalk(position, first, step=self._step)
        if not self._walk(walk, self.end, offset=offset):
            what = f"the segment ends with offset {walk.next_offset} and should have {offset}"
            raise DamagedStore(self.path, walk.position, what)
        return walk.position, walk.next_offset

    def find(self, time_ms: int) -> int | None:
        """Return the first offset of a message that came at a time or later; None if all came before.

        DamagedStore, OSError.
        """
        end = self.end
        first, position = self._index.before_time(time_ms) or (self.base, 0)
        walk = BlockWalk(position, first, step=self._step)
        return walk.next_offset if self._walk(walk, end, time_ms=time_ms) else None

    def count_bytes(self, offset: int, end: int) -> int:
        """Return the size of the messages from an offset of this segment up to, and without, ``end``.

        ``end`` may be the segment's own. Only heads are read, and the blocks where it begins and ends.
        DamagedStore, OSError.
        """
        position, first = self.locate(offset)
        walk = BlockWalk(position, first, step=self._step)
        if self._walk(walk, self.end, offset=end):
            last = self._before_in(walk.position, walk.next_offset, end)
            return walk.payload_bytes + last - self._before_in(position, first, offset)
        if walk.next_offset < end:
            what = f"the segment ends with offset {walk.next_offset} and should have {end - 1}"
            raise DamagedStore(self.path, walk.position, what)
        return walk.payload_bytes - self._before_in(position, first, offset)

    def _before_in(self, position: int, first: int, offset: int) -> int:
        """Return the size of the messages before an offset in the block that has it."""
        if offset == first:
            return 0
        found: list[StreamMessage] = []
        need = HEAD_BYTES
        while not found:
            data = self.file().read(need, position)
            if len(data) < need:
                raise DamagedStore(self.path, position, "the segment ends within a block")
            *_, need, fault = decode(data, 0, first, first, MOST_BLOCK_BYTES, found)
            if fault is not None:
                raise DamagedStore(self.path, position, fault)
        return sum(len(data) for at, _, data in found if at < offset)

    def _walk(self, walk: BlockWalk, end: SegmentEnd, *, offset: int = -1, time_ms: int = -1) -> bool:
        file = self.file()
        found = False
        while not found and walk.position < end.nbytes:
            data = file.read(min(max(WINDOW_BYTES, walk.need), end.nbytes - walk.position), walk.position)
            if len(data) < walk.need:
                raise DamagedStore(self.path, walk.position, "the segment ends within a block")
            found = walk.go(data, offset=offset, time_ms=time_ms)
            if walk.fault is not None:
                raise DamagedStore(self.path, walk.position, walk.fault)
        self._index.add(walk.marks)
        return found


def path_of(directory: Path, base: int) -> Path:
    """Return where the segment is that begins with an offset."""
    return directory / f"{base:020d}{SUFFIX}"


def bases_in(directory: Path) -> list[int]:
    """Return the first offset of every segment in a directory, in order."""
    found = (_NAME.fullmatch(each.name) for each in directory.iterdir())
    return sorted(int(match[1]) for match in found if match)


def closed_end(directory: Path, base: int) -> SegmentEnd:
    """Return where a segment ends, by its last block alone.

    DamagedStore where no block ends there. OSError.
    """
    path = path_of(directory, base)
    file = SegmentFile(path, os.O_RDONLY)
    nbytes = os.fstat(file.fd).st_size
    if nbytes == 0:
        return SegmentEnd(base, 0, 0)
    tail = file.read(TAIL_BYTES, max(nbytes - TAIL_BYTES, 0))
    begin = nbytes - tail_size(tail)
    end = end_of(file.read(HEAD_BYTES, begin), tail) if 0 <= begin < nbytes else None
    if end is None:
        raise DamagedStore(path, nbytes, "no block of the stream ends at the end of the file")
    return SegmentEnd(end[0], nbytes, end[1])
