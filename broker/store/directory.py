"""What outlives the journal, in LMDB: shelves, their pages, notes, and where the journal begins.

One transaction is one checkpoint, synced when it is committed. Every value carries a checksum of its
own, for the database has none.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from broker.errors import OperatorError
from broker.store.faults import DamagedStore, SyncFault
from broker.store.files import sync_file
from broker.store.pagefile import BlobPlace
from broker.store.records import crc32c

# The file in a data directory.
DIRECTORY = "directory.mdb"
# With 3 a group may have copies, with 4 lists of copies and of what is done with, and logs may share a page.
# A broker of before passes over them: it must not open such a directory.
VERSION = 4
OLDEST_VERSION = 2
# Room in the address space, not on disk.
MAP_BYTES = 64 << 30
# Behind the last page, so that a checkpoint can be committed when the disk is full.
RESERVE_BYTES = 1 << 20
# The exit status of a child that met something only a damaged file has.
BROKEN = 2
# <linux/prctl.h>
PR_SET_PDEATHSIG = 1

Read = TypeVar("Read")

_SHELF = struct.Struct("<QH")
_PAGE = struct.Struct("<QQQQQI")
_UPDATE = struct.Struct("<QBI")
_META = struct.Struct("<IIQQQQQQI")


@dataclass(frozen=True, slots=True)
class Meta:
    """``oldest`` is the first journal file that is needed, ``first_group`` the first group in it.

    ``clean_group`` is the last group of an orderly stop, 0 while a broker runs or after a crash.
    ``next_shelf`` is a number no shelf ever had: those that are gone may stand in the journal still.
    """

    oldest: int = 1
    first_group: int = 1
    clean_group: int = 0
    runs: int = 0
    next_shelf: int = 1


@dataclass(frozen=True, slots=True)
class QueueLogRow:
    """A shelf as it was at the last checkpoint."""

    id: int
    name: str
    definition: bytes
    last_seq: int


@dataclass(frozen=True, slots=True)
class PageRow:
    """A page: the shelf, the numbers it spans, where its blob is, the bits and the bytes of what is live."""

    shelf: int
    first: int
    last: int
    place: BlobPlace
    bitmap: bytes
    nbytes: int
    updates: tuple[tuple[int, int, int], ...] = ()


@dataclass(slots=True)
class CheckpointChange:
    """What one checkpoint writes; ``gone_pages`` are (shelf id, first number)."""

    meta: Meta
    shelves: list[QueueLogRow] = field(default_factory=list)
    gone_shelves: list[int] = field(default_factory=list)
    pages: list[PageRow] = field(default_factory=list)
    gone_pages: list[tuple[int, int]] = field(default_factory=list)
    notes: dict[str, bytes] = field(default_factory=dict)


def make(path: Path) -> None:
    """A new, empty database, whole or not there: a power loss leaves no half of one. OSError, lmdb.Error."""
    new = path.with_name(path.name + ".new")
    for left in (new, _lock_of(new)):
        left.unlink(missing_ok=True)
    Directory(new).close()
    sync_file(new)
    new.rename(path)
    _lock_of(new).unlink(missing_ok=True)
    sync_file(path.parent)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + "-lock")


def try_to_read(path: Path, *, to_write: bool = False) -> None:
    """DamagedStore where reading the database, or writing to it, would end the process.

    It is mapped into memory and trusts its own pointers: where the file was cut short, or a pointer
    was damaged, a read is a signal and no exception. So a child reads it all first.
    """
    if not path.exists():
        return
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _end_with(parent)
            _read_all(path, to_write)
            status = 0
        except lmdb.NotFoundError:
            # Its maker was stopped before it had all its tables: they are made now.
            pass
        except lmdb.Error:
            status = BROKEN
        finally:
            # What is wrong otherwise the parent finds and says itself.
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == BROKEN:
        raise DamagedStore(path, 0, "the directory is cut short or its pages are damaged")


def _end_with(parent: int) -> None:
    """The child has the parent's lock on the data directory: it goes when that is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def _read_all(path: Path, to_write: bool) -> None:
    directory = Directory(path, readonly=True)
    directory.meta()
    directory.check()
    directory.close()
    if to_write:
        Directory(path).rehearse()


class Directory:
    """The database of one data directory. lmdb.Error passes through; its text names what went wrong."""

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self.path = path
        try:
            self._env = lmdb.open(
                str(path),
                map_size=MAP_BYTES,
                subdir=False,
                readonly=readonly,
                create=not readonly,
                mode=0o600,
                max_dbs=4,
            )
        except lmdb.Error as fault:
            raise DamagedStore(path, 0, f"the directory can't be opened ({fault})") from None
        needed = self.stats()["directory_bytes"]
        if path.stat().st_size < needed:
            raise DamagedStore(path, path.stat().st_size, f"the file ends before its last page, at {needed}")
        self._shelves = self._env.open_db(b"shelves", create=not readonly)
        self._pages = self._env.open_db(b"pages", create=not readonly)
        self._notes = self._env.open_db(b"notes", create=not readonly)
        self._meta = self._env.open_db(b"meta", create=not readonly)
        # How many rows there are, and their checksums combined: the database would not miss one.
        self._rows = 0
        self._digest = 0

    def meta(self) -> Meta:
        """Where the journal begins. OperatorError if a newer version wrote it."""
        with self._env.begin() as txn:
            value = txn.get(b"meta", db=self._meta)
        if value is None:
            return Meta()
        version, _, *rest, self._rows, self._digest = self._read(_META.unpack, self._open(value))
        if version < OLDEST_VERSION:
            raise OperatorError(f"{self.path}: the store has format {version}, which no release has written")
        if version > VERSION:
            raise OperatorError(
                f"{self.path}: the store has format {version}, this broker reads up to {VERSION}:"
                " start the version that wrote it, or a newer one"
            )
        return Meta(*rest)

    def check(self) -> None:
        """DamagedStore unless every row is there that was written; after ``meta``."""
        rows = digest = 0
        with self._env.begin() as txn:
            for table in (self._shelves, self._pages, self._notes):
                for key, value in txn.cursor(db=table):
                    rows += 1
                    digest ^= _mark(bytes(key), bytes(value))
        if (rows, digest) != (self._rows, self._digest):
            what = f"{rows} rows with the wrong checksum, where {self._rows} were written"
            raise DamagedStore(self.path, 0, what)

    def shelves(self) -> list[QueueLogRow]:
        """Every shelf."""
        with self._env.begin(db=self._shelves) as txn:
            return [self._read(_shelf, bytes(key), self._open(value)) for key, value in txn.cursor()]

    def pages(self) -> list[PageRow]:
        """Every page, by shelf and number."""
        with self._env.begin(db=self._pages) as txn:
            return [self._page(bytes(key), self._open(value)) for key, value in txn.cursor()]

    def notes(self) -> dict[str, bytes]:
        """Every note."""
        with self._env.begin(db=self._notes) as txn:
            return dict(self._read(_note, self._open(value)) for _, value in txn.cursor())

    def write(self, change: CheckpointChange) -> None:
        """One transaction, on disk when this returns. lmdb.Error where it was not made, SyncFault where
        nobody knows whether it was.
        """
        try:
            rows, digest = self._write(change)
        except lmdb.Error as fault:
            if self._is_sound():
                raise
            raise SyncFault(f"{self.path}: {fault}; whether it was committed nobody knows") from fault
        self._rows, self._digest = rows, digest

    def _is_sound(self) -> bool:
        """False once the page that commits could not be written: no transaction is begun after that."""
        try:
            self._env.begin(write=True).abort()
        except lmdb.Error:
            return False
        return True

    def _write(self, change: CheckpointChange) -> tuple[int, int]:
        rows, digest = self._rows, self._digest
        with self._env.begin(write=True) as txn:
            for table, key, value in self._values(change):
                before = txn.get(key, db=table)
                if before is not None:
                    rows -= 1
                    digest ^= _mark(key, bytes(before))
                if value:
                    rows += 1
                    digest ^= _mark(key, value)
                    txn.put(key, value, db=table)
                elif before is not None:
                    txn.delete(key, db=table)
            meta = change.meta
            numbers = (meta.oldest, meta.first_group, meta.clean_group, meta.runs, meta.next_shelf)
            txn.put(b"meta", _sealed(_META.pack(VERSION, 0, *numbers, rows, digest)), db=self._meta)
        return rows, digest

    def reserve(self) -> None:
        """Have room behind the last page for a few checkpoints on a full disk; OSError if there is none."""
        needed = self.stats()["directory_bytes"]
        room = max(RESERVE_BYTES, needed // 8)
        if needed + room // 2 <= self.path.stat().st_size:
            return
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(fd, needed, room)
        finally:
            os.close(fd)

    def rehearse(self) -> None:
        """As much of a write as can be taken back: it reads which pages are free."""
        txn = self._env.begin(write=True)
        try:
            for table in (self._shelves, self._pages, self._notes, self._meta):
                txn.put(b"\xff", b"", db=table)
        finally:
            txn.abort()

    def _values(self, change: CheckpointChange) -> Iterator[tuple[Any, bytes, bytes]]:
        """Every row to be written: its table, its key, its value; an empty one goes."""
        for shelf in change.gone_shelves:
            yield self._shelves, _key(shelf), b""
        for shelf, first in change.gone_pages:
            yield self._pages, _key(shelf, first), b""
        for row in change.shelves:
            yield self._shelves, _key(row.id), _sealed(_shelf_value(row))
        for page in change.pages:
            yield self._pages, _key(page.shelf, page.first), _sealed(_page_value(page))
        for name, value in change.notes.items():
            yield self._notes, _note_key(name), _sealed(_note_value(name, value)) if value else b""

    def copy(self, path: Path) -> None:
        """A consistent copy, while the original is in use."""
        with path.open("wb") as file:
            self._env.copyfd(file.fileno(), compact=True)

    def stats(self) -> dict[str, int]:
        """Bytes of the file that are in use."""
        return {"directory_bytes": self._env.stat()["psize"] * (self._env.info()["last_pgno"] + 1)}

    def close(self) -> None:
        """Let go of the file."""
        self._env.close()

    def _open(self, value: bytes) -> bytes:
        payload = bytes(value[4:])
        if crc32c(payload) != int.from_bytes(value[:4], "little"):
            raise DamagedStore(self.path, 0, "a row's checksum is wrong")
        return payload

    def _read(self, how: Callable[..., Read], *raw: bytes) -> Read:
        """A row as it is meant; DamagedStore if it can't be one, though its checksum is right."""
        try:
            return how(*raw)
        except (ValueError, struct.error) as fault:
            raise DamagedStore(self.path, 0, f"a row can't be read ({fault})") from fault

    def _page(self, key: bytes, value: bytes) -> PageRow:
        row = self._read(_page, key, value)
        if row.last < row.first or len(row.bitmap) != (row.last - row.first + 8) >> 3:
            # Whoever reads the bits trusts that they are there.
            raise DamagedStore(self.path, 0, "a page's row says more messages than it has bits for")
        return row


def _shelf(key: bytes, value: bytes) -> QueueLogRow:
    last_seq, length = _SHELF.unpack_from(value)
    name_end = _SHELF.size + length
    name = value[_SHELF.size : name_end].decode()
    return QueueLogRow(int.from_bytes(key, "big"), name, value[name_end:], last_seq)


def _page(key: bytes, value: bytes) -> PageRow:
    last, offset, block_bytes, nbytes, bitmap_bytes, count = _PAGE.unpack_from(value)
    at = _PAGE.size + bitmap_bytes
    if len(value) < at + count * _UPDATE.size:
        raise ValueError("it is cut short")
    return PageRow(
        int.from_bytes(key[:4], "big"),
        int.from_bytes(key[4:], "big"),
        last,
        BlobPlace(offset, block_bytes),
        value[_PAGE.size : at],
        nbytes,
        tuple(_UPDATE.iter_unpack(value[at : at + count * _UPDATE.size])),
    )


def _key(shelf: int, first: int | None = None) -> bytes:
    return shelf.to_bytes(4, "big") + (b"" if first is None else first.to_bytes(8, "big"))


def _note_key(key: str) -> bytes:
    """LMDB's keys are short; a note's may hold a node's whole name."""
    raw = key.encode()
    return raw if len(raw) < 400 else b"#" + hashlib.sha256(raw).digest()


def _note_value(key: str, value: bytes) -> bytes:
    raw = key.encode()
    return len(raw).to_bytes(4, "little") + raw + value


def _note(payload: bytes) -> tuple[str, bytes]:
    end = 4 + int.from_bytes(payload[:4], "little")
    return payload[4:end].decode(), payload[end:]


def _mark(key: bytes, value: bytes) -> int:
    return crc32c(key + value)


def _sealed(payload: bytes) -> bytes:
    return crc32c(payload).to_bytes(4, "little") + payload


def _shelf_value(row: QueueLogRow) -> bytes:
    name = row.name.encode()
    return _SHELF.pack(row.last_seq, len(name)) + name + row.definition


def _page_value(row: PageRow) -> bytes:
    sizes = (row.place.nbytes, row.nbytes, len(row.bitmap), len(row.updates))
    head = _PAGE.pack(row.last, row.place.offset, *sizes)
    return head + row.bitmap + b"".join(_UPDATE.pack(*update) for update in row.updates)
