"""The journal's files: named by number, filled with zeros before they are used, used again when free.

Overwriting blocks that are there makes a sync several times cheaper than making a file longer, and
can't fail for lack of room. A file that nobody needs is a spare until it is given a new number.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from contextlib import suppress
from pathlib import Path

from broker.store.faults import DamagedStore, SyncFault
from broker.store.records import crc32c

log = logging.getLogger("sluice.store")

VERSION = 2
BLOCK_BYTES = 4096
_HEAD = struct.Struct("<8sIIQ")
_MAGIC = b"SLUICEJF"
_NAME = re.compile(r"journal-(\d{8,})")
_ZEROS = bytes(1 << 20)

# Bounds of a file's size where nobody said one.
LARGEST_BYTES = 32 << 20
SMALLEST_BYTES = 1 << 20
# Spare files that are kept; what is more is deleted.
SPARES = 2


class JournalFiles:
    """The files of one directory, each of ``file_bytes`` or longer."""

    def __init__(self, directory: Path, file_bytes: int) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self._open: dict[int, int] = {}
        self._spares = sorted(directory.glob("spare-*"))
        # Retired, and neither renamed nor removed yet, for the disk refused to.
        self._left: list[int] = []

    def path(self, number: int) -> Path:
        """Where the file of that number is."""
        return self.directory / f"journal-{number:08d}"

    def numbers(self) -> list[int]:
        """Every file there is, in order."""
        found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def prepare(self, number: int) -> int:
        """A file to be written, its descriptor; OSError if there is no room for one, SyncFault."""
        is_new = not self._spares
        raw = self.directory / f"spare-{number:08d}" if is_new else self._spares.pop()
        try:
            fd = os.open(raw, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            if not is_new:
                self._spares.append(raw)
            raise
        try:
            self._fill(fd)
            os.pwrite(fd, _head(number), 0)
            os.fdatasync(fd)
            raw.rename(self.path(number))
        except OSError:
            os.close(fd)
            # Part of a file is of no use, and takes room that others need; of one that could not be
            # synced nobody knows which blocks it has.
            with suppress(OSError):
                raw.unlink()
            raise
        try:
            self.sync_directory()
        except OSError as fault:
            os.close(fd)
            raise SyncFault(f"sync of {self.directory}: {fault.strerror}") from fault
        self._open[number] = fd
        return fd

    def reopen(self, number: int) -> int:
        """A file that was prepared and never written, to be written; its descriptor."""
        self._open[number] = os.open(self.path(number), os.O_RDWR | os.O_CLOEXEC)
        return self._open[number]

    def sync(self, number: int) -> None:
        """All that was written to a file of this run survives; OSError means that nobody knows what does."""
        fd = self._open.get(number)
        if fd is not None:
            os.fdatasync(fd)

    def retire(self, number: int) -> None:
        """The file is needed no more: a spare, or gone if there are enough or it grew long.

        Where the disk refuses, it stays, and is tried again with the next one; at the latest the next
        start does it.
        """
        fd = self._open.pop(number, None)
        if fd is not None:
            with suppress(OSError):
                os.close(fd)
        left, self._left = [*self._left, number], []
        for each in left:
            try:
                self._put_aside(each)
            except FileNotFoundError:
                pass
            except OSError as fault:
                log.warning("%s: can't be put aside yet: %s", self.path(each), fault.strerror)
                self._left.append(each)

    def _put_aside(self, number: int) -> None:
        path = self.path(number)
        if len(self._spares) >= SPARES or path.stat().st_size >= 2 * self.file_bytes:
            path.unlink()
            return
        spare = self.directory / f"spare-{number:08d}"
        path.rename(spare)
        self._spares.append(spare)

    def drop_spares(self, kept: int) -> None:
        """Give the disk back all spare files but so many; one that can't be removed stays a spare."""
        with suppress(OSError):
            while len(self._spares) > kept:
                self._spares[-1].unlink(missing_ok=True)
                self._spares.pop()

    def read(self, number: int) -> bytes:
        """The whole file; DamagedStore if its head isn't that file's."""
        path = self.path(number)
        data = path.read_bytes()
        if len(data) < BLOCK_BYTES:
            raise DamagedStore(path, len(data), "the journal file is cut short")
        if data[: _HEAD.size + 4] != _head(number)[: _HEAD.size + 4]:
            raise DamagedStore(path, 0, "this is not the head of that journal file")
        return data

    def copy(self, number: int, target: Path, upto: int | None) -> None:
        """A copy of the file in another directory, zeros from ``upto`` on."""
        data = self.path(number).read_bytes()
        if upto is not None:
            data = data[:upto].ljust(len(data), b"\0")
        (target / self.path(number).name).write_bytes(data)

    def sync_directory(self) -> None:
        """What was made and renamed survives."""
        sync_file(self.directory)

    def nbytes(self) -> int:
        """What all of them, spares included, take on disk; any thread may ask."""
        total = 0
        for path in (*self.directory.glob("journal-*"), *self.directory.glob("spare-*")):
            with suppress(FileNotFoundError):  # the keeper has renamed or removed it since it was listed
                total += path.stat().st_size
        return total

    def close(self) -> None:
        """Let go of every file."""
        for fd in self._open.values():
            with suppress(OSError):
                os.close(fd)
        self._open.clear()

    def _fill(self, fd: int) -> None:
        """Really write it: blocks that were only reserved cost a sync of the file system's later."""
        size = os.fstat(fd).st_size
        while size < self.file_bytes:
            size += os.pwrite(fd, _ZEROS[: self.file_bytes - size], size)


def fitting_bytes(directory: Path) -> int:
    """Return a file's size where nobody said one: a part of what the disk has free, within bounds."""
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize
    return max(min(free // 32, LARGEST_BYTES), SMALLEST_BYTES) & ~4095


def sync_file(path: Path) -> None:
    """All that anybody wrote to the file, or changed in the directory, survives."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _head(number: int) -> bytes:
    head = _HEAD.pack(_MAGIC, VERSION, 0, number)
    return (head + struct.pack("<I", crc32c(head))).ljust(BLOCK_BYTES, b"\0")
