"""The files of large messages, one each, in ``DATA/large``.

One thread writes and one reads, so that a sync keeps no receiver waiting; answers reach the owner's
thread through ``post``. A file that must survive is synced, and its place in the directory too,
before ``finished`` is told. What is there at the start and not referred to is deleted.
"""

from __future__ import annotations

import logging
import os
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker.errors import OperatorError
from broker.store.faults import DamagedStore
from broker.store.files import sync_file
from broker.store.maintenance import MaintenanceThread
from broker.store.port import LARGE_FILE, LARGE_NOTE
from broker.store.records import NOTE, crc32c, read
from broker.store.replay import named

log = logging.getLogger("sluice.store")

LARGE = "large"
BLOCK_BYTES = 1 << 17
# A file that must survive is synced each time so much of it was written, so that the last sync, which
# its sender waits for, is not of all of it.
SYNC_BYTES = 32 << 20
# What the threads' jobs are about, in the log.
_FILES = "the large messages' files"

Post = Callable[[Callable[[], None]], None]
Written = Callable[[int, Exception | None], None]
Finished = Callable[[int, int, Exception | None], None]
Arrived = Callable[[bytes | Exception], None]


class LargeFiles:
    """The folder of one data directory. ``keep`` are the numbers of the files that are referred to.

    OperatorError if it can't be used.
    """

    def __init__(self, directory: Path, post: Post, keep: Collection[int] = ()) -> None:
        self.folder = directory / LARGE
        self.post = post
        self._last = max(keep, default=0)
        try:
            self._prepare(directory, keep)
        except OSError as fault:
            raise OperatorError(f"{self.folder}: can't be used: {fault.strerror}") from fault
        self._closed = False
        self.writer = MaintenanceThread("sluice-large-writer", _FILES)
        self.reader = MaintenanceThread("sluice-large-reader", _FILES)

    def _prepare(self, directory: Path, keep: Collection[int]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        sync_file(directory)
        for path, number in numbered(self.folder):
            if number not in keep:
                path.unlink()
            self._last = max(self._last, number)

    def path(self, number: int) -> Path:
        """Where the file of that number is."""
        return self.folder / name_of(number)

    def begin(self, durable: bool, written: Written, finished: Finished) -> WritingFile:
        """A new file."""
        self._last = self._number_behind(self._last)
        return WritingFile(self, self._last, durable, written, finished)

    def _number_behind(self, last: int) -> int:
        """Return the next file's number."""
        return last + 1

    def read(self, number: int, size: int, checksum: int, arrived: Arrived) -> ReadingFile:
        """A complete file from its beginning."""
        return ReadingFile(self, number, size, checksum, arrived)

    def remove(self, number: int) -> None:
        """Nobody needs the file any more; who has it open may go on reading."""
        if not self._closed:
            self.writer.ask(lambda: self._unlink(number))

    def close(self) -> None:
        """Finish what was asked for; nothing is removed any more."""
        self._closed = True
        self.writer.stop()
        self.reader.stop()

    def _unlink(self, number: int) -> None:
        try:
            self.path(number).unlink(missing_ok=True)
        except OSError as fault:
            log.error("%s can't be deleted: %s", self.path(number), fault.strerror)


class WritingFile:
    """A file that is being written; after a fault it is gone, and all that is asked for is refused."""

    def __init__(
        self, files: LargeFiles, number: int, durable: bool, written: Written, finished: Finished
    ) -> None:
        self.number = number
        self._files = files
        self._durable = durable
        self._tell_written = written
        self._tell_finished = finished
        self._dropped = False
        # The writer's own from here on.
        self._fd = -1
        self._size = 0
        self._synced = 0
        self._checksum = 0
        self._fault: Exception | None = None

    def write(self, piece: bytes) -> None:
        """Append some bytes."""
        self._files.writer.ask(lambda: self._write(piece))

    def finish(self) -> None:
        """It is complete; durable ones are synced."""
        self._files.writer.ask(self._finish)

    def drop(self) -> None:
        """It is not wanted; what was asked for and isn't done won't be."""
        self._dropped = True
        self._files.writer.ask(self._discard)

    @property
    def is_dropped(self) -> bool:
        """Whether it isn't wanted any more."""
        return self._dropped

    def _write(self, piece: bytes) -> None:
        if self._dropped:
            return
        try:
            if self._fault is None:
                self._append(piece)
        except OSError as fault:
            self._fail(fault)
        fault_now = self._fault
        self._files.post(lambda: self._tell_written(len(piece), fault_now))

    def _append(self, piece: bytes) -> None:
        if self._fd < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self._files.path(self.number), flags, 0o600)
        self._checksum = crc32c(piece, self._checksum)
        view = memoryview(piece)
        while view:
            view = view[os.write(self._fd, view) :]
        self._size += len(piece)
        if self._durable and self._size - self._synced >= SYNC_BYTES:
            os.fdatasync(self._fd)
            self._synced = self._size

    def _finish(self) -> None:
        if self._dropped:
            return
        try:
            if self._fault is None:
                self._settle()
        except OSError as fault:
            self._fail(fault)
        number, checksum, fault_now = self.number, self._checksum, self._fault
        self._files.post(lambda: self._tell_finished(number, checksum, fault_now))

    def _settle(self) -> None:
        if self._durable:
            os.fsync(self._fd)
            sync_file(self._files.folder)
        # It is nobody's any more, also where closing it fails.
        fd, self._fd = self._fd, -1
        os.close(fd)

    def _fail(self, fault: OSError) -> None:
        log.error("%s: a large message can't be written: %s", self._files.path(self.number), fault.strerror)
        self._fault = fault
        self._discard()

    def _discard(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)
        with suppress(OSError):
            self._files.path(self.number).unlink(missing_ok=True)


class ReadingFile:
    """A file that is being read, block by block; what isn't what was written is not handed out whole."""

    def __init__(self, files: LargeFiles, number: int, size: int, checksum: int, arrived: Arrived) -> None:
        self._files = files
        self._path = files.path(number)
        self._size = size
        self._wanted = checksum
        self._arrived = arrived
        self._closed = False
        # The reader's own from here on.
        self._fd = -1
        self._offset = 0
        self._checksum = 0

    def more(self) -> None:
        """Ask for the next block."""
        self._files.reader.ask(self._read)

    def close(self) -> None:
        """Nothing more is wanted."""
        self._closed = True
        self._files.reader.ask(self._let_go)

    def _read(self) -> None:
        if self._closed:
            return
        answer: bytes | Exception
        try:
            answer = self._block()
        except (OSError, DamagedStore) as fault:
            log.error("a large message can't be read: %s", fault)
            answer = fault
        self._files.post(lambda: self._tell(answer))

    def _block(self) -> bytes:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        block = os.pread(self._fd, min(BLOCK_BYTES, self._size - self._offset), self._offset)
        if not block:
            raise DamagedStore(self._path, self._offset, "the file of a large message is cut short")
        self._offset += len(block)
        self._checksum = crc32c(block, self._checksum)
        if self._offset == self._size and self._checksum != self._wanted:
            raise DamagedStore(self._path, 0, "the checksum of a large message's file is wrong")
        return block

    def _tell(self, answer: bytes | Exception) -> None:
        if not self._closed:
            self._arrived(answer)

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def name_of(number: int) -> str:
    """The file's name."""
    return f"{number:08d}"


def numbered(folder: Path) -> Iterator[tuple[Path, int]]:
    """Every file in the folder with its number."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.isdecimal():
            yield path, int(path.name)


@dataclass(frozen=True, slots=True)
class LargeFile:
    """A file that the store has a note of."""

    number: int
    path: Path
    size: int
    checksum: int


def larges_of(notes: Mapping[str, bytes], directory: Path) -> list[LargeFile]:
    """The files that the store's notes refer to, each once."""
    found: dict[int, LargeFile] = {}
    for key, value in notes.items():
        if value and key.startswith(LARGE_NOTE):
            each = large_of(key, value, directory)
            found[each.number] = each
    return list(found.values())


def large_of(key: str, value: bytes, directory: Path) -> LargeFile:
    """The file that one such note refers to."""
    try:
        number = int(key.removeprefix(LARGE_NOTE).partition("/")[0])
        size, checksum = LARGE_FILE.unpack(value)
    except (ValueError, struct.error) as fault:
        raise DamagedStore(directory, 0, f"the note {key!r} can't be read ({fault})") from fault
    return LargeFile(number, directory / LARGE / name_of(number), size, checksum)


def named_bodies(data: bytes, directory: Path) -> list[LargeFile]:
    """The files that the notes of a sealed group refer to, each once, as files of this data directory.

    An owner has each of them in the log's store of bodies before it appends the group; a standby has each
    in its own directory before it applies the group. DamagedStore, DamagedRecord.
    """
    if LARGE_NOTE.encode() not in data:
        return []
    notes = (named(record[6]) for record in read(data) if record[0] == NOTE)
    return larges_of(dict(notes), directory)


def body_key(file: LargeFile) -> str:
    """The name of a body that is the same on every member, and no other body's.

    A file's number is given again once its body is gone.
    """
    return f"{file.number:08d}-{file.size:x}-{file.checksum:08x}"


def receive_body(file: LargeFile, chunks: Iterable[bytes]) -> None:
    """Write the file of a large message that another member has: whole, synced and verified, or not at all.

    It replaces what has its name. DamagedStore if the chunks aren't what its note says, OSError.
    """
    file.path.parent.mkdir(exist_ok=True)
    begun = file.path.with_name(f"{file.path.name}.part")
    size = checksum = 0
    try:
        with open(begun, "wb", opener=_private) as opened:
            for chunk in chunks:
                opened.write(chunk)
                size += len(chunk)
                checksum = crc32c(chunk, checksum)
            opened.flush()
            os.fsync(opened.fileno())
        if (size, checksum) != (file.size, file.checksum):
            raise DamagedStore(file.path, 0, "what came for a large message's file isn't what its note says")
        begun.rename(file.path)
        sync_file(file.path.parent)
    finally:
        with suppress(OSError):
            begun.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class BodyNotes:
    """How many of a store's notes refer to each file of a large message."""

    def __init__(self, notes: Mapping[str, bytes], directory: Path) -> None:
        self._directory = directory
        self._count: Counter[int] = Counter()
        for key, value in notes.items():
            if value and key.startswith(LARGE_NOTE):
                self._count[large_of(key, value, directory).number] += 1

    def names(self, number: int) -> bool:
        """Whether a note refers to the file of that number."""
        return number in self._count

    def change(self, key: str, before: bytes, value: bytes) -> LargeFile | None:
        """Count a note that changes; the answer is the file that no note refers to any more."""
        if value:
            self._count[large_of(key, value, self._directory).number] += not before
        elif before:
            file = large_of(key, before, self._directory)
            self._count[file.number] -= 1
            if not self._count[file.number]:
                del self._count[file.number]
                return file
        return None


def verify(file: LargeFile, *, whole: bool = True) -> None:
    """DamagedStore if a file isn't what was written; only its size is looked at unless all of it is."""
    try:
        actual = file.path.stat().st_size
    except FileNotFoundError:
        raise DamagedStore(file.path, 0, "the file of a large message is missing") from None
    if actual != file.size:
        what = f"the file of a large message should have {file.size} bytes"
        raise DamagedStore(file.path, actual, what)
    if not whole:
        return
    found = 0
    with file.path.open("rb") as opened:
        while block := opened.read(1 << 20):
            found = crc32c(block, found)
    if found != file.checksum:
        raise DamagedStore(file.path, 0, "the checksum of a large message's file is wrong")
