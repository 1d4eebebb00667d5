"""One file of blocks that hold blobs: written once, read as often as needed, freed.

It knows no database, no thread and no meaning of what it holds. Which blocks are in use is known in
memory alone; whoever needs it after a restart keeps the places and claims them again.
"""

from __future__ import annotations

import bisect
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from broker.records import crc32c
from broker.store.faults import DamagedStore

BLOCK_BYTES = 4096
_HEAD = struct.Struct("<8sIIQ")
_MAGIC = b"SLUICEPG"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a blob is: its first byte and how many bytes of blocks it has."""

    offset: int
    nbytes: int


class PageFile:
    """Blobs in blocks of 4096 bytes. Free runs are used again, best fit first; a free tail is cut off.

    OSError of the file passes through; DamagedStore where a blob isn't what was written.
    """

    def __init__(self, path: Path, *, empty: bool = False, readonly: bool = False) -> None:
        self.path = path
        flags = os.O_RDONLY if readonly else os.O_RDWR | os.O_CREAT | (os.O_TRUNC if empty else 0)
        self._readonly = readonly
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self.size_bytes = 0
        self.used_bytes = 0
        # Free runs below the end, by offset and by (size, offset).
        self._free: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []

    def write(self, blob: bytes) -> Place:
        """Put a blob somewhere."""
        nbytes = -(-(len(blob) + _HEAD.size) // BLOCK_BYTES) * BLOCK_BYTES
        place = Place(self._allocate(nbytes), nbytes)
        head = _HEAD.pack(_MAGIC, crc32c(blob), 0, len(blob))
        padding = bytes(nbytes - len(blob) - _HEAD.size)
        try:
            _write_all(self._fd, b"".join((head, blob, padding)), place.offset)
        except OSError:
            self.free(place)
            raise
        return place

    def read(self, place: Place) -> bytes:
        """The blob at a place."""
        data = os.pread(self._fd, place.nbytes, place.offset)
        if len(data) < _HEAD.size:
            raise DamagedStore(self.path, place.offset, "the file ends within a page")
        magic, checksum, _, length = _HEAD.unpack_from(data)
        blob = data[_HEAD.size : _HEAD.size + length]
        if magic != _MAGIC or len(blob) != length or crc32c(blob) != checksum:
            raise DamagedStore(self.path, place.offset, "a page's checksum is wrong")
        return blob

    def free(self, place: Place) -> None:
        """The blob is not needed any more."""
        self.used_bytes -= place.nbytes
        offset, nbytes = place.offset, place.nbytes
        before = self._ends.pop(offset, None)
        if before is not None:
            nbytes += self._drop(before)
            offset = before
        if offset + nbytes in self._free:
            following = offset + nbytes
            self._ends.pop(following + self._free[following], None)
            nbytes += self._drop(following)
        if offset + nbytes == self.size_bytes:
            self.size_bytes = offset
            os.ftruncate(self._fd, offset)
            return
        self._add(offset, nbytes)

    def claim(self, places: list[Place]) -> None:
        """What is in use in a file found on disk; all else of it is free."""
        end = 0
        for place in sorted(places, key=lambda each: each.offset):
            if place.offset < end:
                raise DamagedStore(self.path, place.offset, "two pages overlap")
            if place.offset > end:
                self._add(end, place.offset - end)
            end = place.offset + place.nbytes
            self.used_bytes += place.nbytes
        actual = os.fstat(self._fd).st_size
        if actual < end:
            raise DamagedStore(self.path, actual, f"the file ends before its last page, at byte {end}")
        self.size_bytes = end
        if actual > end and not self._readonly:
            os.ftruncate(self._fd, end)

    def sync(self) -> None:
        """All that was written survives; OSError means that nobody knows what does."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def _allocate(self, nbytes: int) -> int:
        self.used_bytes += nbytes
        at = bisect.bisect_left(self._by_size, (nbytes, 0))
        if at == len(self._by_size):
            offset = self.size_bytes
            self.size_bytes += nbytes
            return offset
        size, offset = self._by_size[at]
        self._ends.pop(offset + size)
        self._drop(offset)
        if size > nbytes:
            self._add(offset + nbytes, size - nbytes)
        return offset

    def _add(self, offset: int, nbytes: int) -> None:
        self._free[offset] = nbytes
        self._ends[offset + nbytes] = offset
        bisect.insort(self._by_size, (nbytes, offset))

    def _drop(self, offset: int) -> int:
        nbytes = self._free.pop(offset)
        del self._by_size[bisect.bisect_left(self._by_size, (nbytes, offset))]
        return nbytes


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written
