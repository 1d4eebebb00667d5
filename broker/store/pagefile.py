"""One file of blocks that hold blobs: written once, read as often as needed, freed.

It knows no database, no thread and no meaning of what it holds. Which blocks are in use is known in
memory alone; whoever needs it after a restart keeps the places and claims them again.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker.store.faults import DamagedStore, is_lack_of_room
from broker.store.records import crc32c

# The file in a data directory.
PAGES = "pages"
BLOCK_BYTES = 4096
COPY_BYTES = 1 << 20
_HEAD = struct.Struct("<8sIIQ")
_MAGIC = b"SLUICEPG"

# fallocate(2), of which the library has only the half that takes blocks.
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """Where a blob is: its first byte and how many bytes of blocks it has."""

    offset: int
    nbytes: int


class PageFile:
    """Blobs in blocks of 4096 bytes. Free runs are used again, best fit first; a free tail is cut off but
    for ``kept_bytes``, which are there for when the disk has no more (``reserve``).

    OSError of the file passes through; DamagedStore where a blob isn't what was written. Freeing raises
    nothing: room that the disk won't take back now is offered again later.
    """

    def __init__(self, path: Path, *, empty: bool = False, readonly: bool = False) -> None:
        self.path = path
        flags = os.O_RDONLY if readonly else os.O_RDWR | os.O_CREAT | (os.O_TRUNC if empty else 0)
        self._readonly = readonly
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self.size_bytes = 0
        self.used_bytes = 0
        self.kept_bytes = 0
        # How long the file is: behind ``size_bytes`` is what was reserved, or could not be cut off yet.
        self._length = 0
        # Up to where the disk has blocks for sure, behind the last page.
        self._sure = 0
        # Free runs below the end, by offset and by (size, offset); those that still have their blocks.
        self._free: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        self._whole: set[int] = set()
        # By offset, how many have a place beside the first.
        self._others: dict[int, int] = {}

    def write(self, blob: bytes) -> BlobPlace:
        """Put a blob somewhere."""
        nbytes = -(-(len(blob) + _HEAD.size) // BLOCK_BYTES) * BLOCK_BYTES
        head = _HEAD.pack(_MAGIC, crc32c(blob), 0, len(blob))
        padded = b"".join((head, blob, bytes(nbytes - len(blob) - _HEAD.size)))
        before = self.size_bytes
        place = BlobPlace(self._allocate(nbytes), nbytes)
        try:
            return self._put(place, padded)
        except OSError as fault:
            if not is_lack_of_room(fault) or place.offset >= before:
                raise
        # Its blocks were given back, and somebody else has them; behind the end there may be some.
        return self._put(BlobPlace(self._append(nbytes), nbytes), padded)

    def _put(self, place: BlobPlace, padded: bytes) -> BlobPlace:
        self._length = max(self._length, place.offset + place.nbytes)
        try:
            _write_all(self._fd, padded, place.offset)
        except OSError:
            self.free(place)
            raise
        return place

    def read(self, place: BlobPlace) -> bytes:
        """The blob at a place."""
        data = _read_all(self._fd, place.nbytes, place.offset)
        if len(data) < _HEAD.size:
            raise DamagedStore(self.path, place.offset, "the file ends within a page")
        magic, checksum, _, length = _HEAD.unpack_from(data)
        blob = data[_HEAD.size : _HEAD.size + length]
        if magic != _MAGIC or len(blob) != length or crc32c(blob) != checksum:
            raise DamagedStore(self.path, place.offset, "a page's checksum is wrong")
        return blob

    def share(self, place: BlobPlace, count: int) -> None:
        """A blob that was written is so many's: it is there until each of them has freed it."""
        if count > 1:
            self._others[place.offset] = count - 1

    def free(self, place: BlobPlace) -> None:
        """The blob is not needed any more, by one of those that share it."""
        others = self._others.pop(place.offset, 0)
        if others > 1:
            self._others[place.offset] = others - 1
        if others:
            return
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
            self._trim()
            return
        self._add(offset, nbytes)

    def reserve(self, nbytes: int) -> None:
        """Have so many bytes of the disk behind the last page, so that pages can be written when it is
        full; OSError if they can't be had, and then it is as it was.
        """
        self.kept_bytes = max(self.kept_bytes, min(nbytes, self._length - self.size_bytes))
        end = self.size_bytes + nbytes
        if end <= self._sure:
            return
        try:
            os.posix_fallocate(self._fd, self.size_bytes, nbytes)
        except OSError:
            # Some file systems keep what they had found until then.
            with suppress(OSError):
                os.ftruncate(self._fd, self._length)
            raise
        self.kept_bytes = nbytes
        self._length = max(self._length, end)
        self._sure = end

    def give_up(self, nbytes: int) -> bool:
        """Give the disk back so much of what was reserved; False where there isn't as much."""
        there = self._length - self.size_bytes
        if nbytes <= 0 or there < nbytes:
            return False
        self.kept_bytes = there - nbytes
        return self._trim()

    def give_back(self) -> None:
        """Give the disk back the blocks of free runs between pages. Using such a run again needs room."""
        for offset in list(self._whole):
            if not punch_hole(self._fd, offset, self._free[offset]):
                return
            self._whole.discard(offset)

    def _trim(self) -> bool:
        end = self.size_bytes + self.kept_bytes
        if self._readonly or end >= self._length:
            return False
        try:
            os.ftruncate(self._fd, end)
        except OSError:
            return False
        self._length = end
        self._sure = min(self._sure, end)
        return True

    def claim(self, places: list[BlobPlace]) -> None:
        """What is in use in a file found on disk, a place as often as it is shared; all else is free."""
        end = 0
        last = None
        for place in sorted(places, key=lambda each: each.offset):
            if place == last:
                self._others[place.offset] = self._others.get(place.offset, 0) + 1
                continue
            last = place
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
        self._length = actual
        self._trim()

    def copy(self, path: Path) -> None:
        """All that may be in use, without what is reserved behind it; while nobody writes."""
        with path.open("wb") as file:
            for at in range(0, self.size_bytes, COPY_BYTES):
                file.write(_read_all(self._fd, min(COPY_BYTES, self.size_bytes - at), at))

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
            self.used_bytes -= nbytes
            return self._append(nbytes)
        size, offset = self._by_size[at]
        self._ends.pop(offset + size)
        self._drop(offset)
        if size > nbytes:
            self._add(offset + nbytes, size - nbytes)
        return offset

    def _append(self, nbytes: int) -> int:
        self.used_bytes += nbytes
        offset = self.size_bytes
        self.size_bytes += nbytes
        return offset

    def _add(self, offset: int, nbytes: int) -> None:
        self._free[offset] = nbytes
        self._whole.add(offset)
        self._ends[offset + nbytes] = offset
        bisect.insort(self._by_size, (nbytes, offset))

    def _drop(self, offset: int) -> int:
        nbytes = self._free.pop(offset)
        self._whole.discard(offset)
        del self._by_size[bisect.bisect_left(self._by_size, (nbytes, offset))]
        return nbytes


def punch_hole(fd: int, offset: int, nbytes: int) -> bool:
    """Whether the file system took the blocks of a range back; it reads as zeros then."""
    return bool(_libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, nbytes) == 0)


def _read_all(fd: int, nbytes: int, offset: int) -> bytes:
    """Up to so many bytes: fewer only at the end of the file."""
    data = os.pread(fd, nbytes, offset)
    while len(data) < nbytes and (more := os.pread(fd, nbytes - len(data), offset + len(data))):
        data += more
    return data


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written
