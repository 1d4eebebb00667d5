"""The files of large messages, on a real disk: written, read, removed, and what a start finds."""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.store.faults import DamagedStore
from broker.store.largefiles import LARGE, LargeFile, LargeFiles, ReadingFile, larges_of, verify
from broker.store.records import crc32c

MB = 1 << 20


class Room:
    """The files with an inbox that is emptied by hand."""

    def __init__(self, folder: Path, keep: tuple[int, ...] = ()) -> None:
        self.inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.files = LargeFiles(folder, self.inbox.put, keep)
        self.folder = folder / LARGE
        self.written: list[tuple[int, Exception | None]] = []
        self.finished: list[tuple[int, int, Exception | None]] = []

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "it never came to be"
            try:
                self.inbox.get(timeout=0.01)()
            except queue.Empty:
                continue

    def put(self, *pieces: bytes, durable: bool = False) -> int:
        """A complete file, its number."""
        writing = self.begin(durable)
        for piece in pieces:
            writing.write(piece)
        writing.finish()
        before = len(self.finished)
        self.until(lambda: len(self.finished) > before)
        return self.finished[-1][0]

    def begin(self, durable: bool = False):  # type: ignore[no-untyped-def]
        return self.files.begin(
            durable,
            lambda nbytes, fault: self.written.append((nbytes, fault)),
            lambda *answer: self.finished.append(answer),
        )

    def take(self, number: int, size: int, checksum: int) -> list[bytes | Exception]:
        """All of a file, block by block."""
        got: list[bytes | Exception] = []
        reading = self.files.read(number, size, checksum, got.append)
        while sum(len(block) for block in got if isinstance(block, bytes)) < size:
            before = len(got)
            reading.more()
            self.until(lambda before=before: len(got) > before)  # type: ignore[misc]
            if isinstance(got[-1], Exception):
                break
        reading.close()
        return got

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def descriptors(self) -> int:
        """How many files of this folder are open; what else the process holds may go at any time."""
        held = 0
        for each in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                held += str(each.readlink()).startswith(str(self.folder))
        return held


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.files.close()


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_written_is_read_in_blocks(room: Room, durable: bool) -> None:
    pieces = [os.urandom(100_000) for _ in range(5)]
    number = room.put(*pieces, durable=durable)
    assert [nbytes for nbytes, _ in room.written] == [100_000] * 5
    blocks = room.take(number, 500_000, crc32c(b"".join(pieces)))
    assert all(isinstance(block, bytes) for block in blocks)
    assert len(blocks) == 4
    assert b"".join(block for block in blocks if isinstance(block, bytes)) == b"".join(pieces)
    room.files.remove(number)
    room.until(lambda: not room.names())


def test_whoever_reads_goes_on_when_the_file_is_removed(room: Room) -> None:
    data = os.urandom(400_000)
    number = room.put(data)
    got: list[bytes | Exception] = []
    reading = room.files.read(number, len(data), crc32c(data), got.append)
    reading.more()
    room.until(lambda: len(got) == 1)
    room.files.remove(number)
    room.until(lambda: not room.names())
    for _ in range(3):
        reading.more()
    room.until(lambda: len(got) == 4)
    assert b"".join(block for block in got if isinstance(block, bytes)) == data
    reading.close()


def test_a_dropped_file_leaves_neither_name_nor_descriptor(room: Room) -> None:
    room.put(b"first")
    writing = room.begin()
    for _ in range(10):
        writing.write(bytes(100_000))
    room.until(lambda: len(room.written) > 3)
    assert room.descriptors() == 1
    writing.drop()
    room.until(lambda: len(room.names()) == 1)
    room.until(lambda: not room.descriptors())
    assert len(room.finished) == 1


def test_a_reader_that_leaves_tells_nobody(room: Room) -> None:
    number = room.put(bytes(300_000))
    got: list[bytes | Exception] = []
    reading: ReadingFile = room.files.read(number, 300_000, 0, got.append)
    reading.more()
    room.until(lambda: len(got) == 1)
    assert room.descriptors() == 1
    reading.more()
    reading.close()
    room.files.reader.ask(lambda: room.inbox.put(lambda: got.append(b"all that was asked for is done")))
    room.until(lambda: len(got) == 2)
    assert got[1] == b"all that was asked for is done"
    assert room.descriptors() == 0


def test_a_full_disk_is_told_and_leaves_no_file(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def full(fd: int, data: memoryview) -> int:
        nonlocal taken
        taken += len(data)
        if taken > 250_000:
            raise OSError(28, "No space left on device")
        return len(data)

    monkeypatch.setattr("broker.store.largefiles.os.write", full)
    writing = room.begin(durable=True)
    for _ in range(5):
        writing.write(bytes(100_000))
    writing.finish()
    room.until(lambda: len(room.finished) == 1)
    assert [fault is None for _, fault in room.written] == [True, True, False, False, False]
    assert isinstance(room.finished[0][2], OSError)
    assert room.names() == []


def test_a_file_that_cannot_be_synced_is_not_finished(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    room.put(b"needn't survive")
    monkeypatch.setattr("broker.store.largefiles.os.fsync", broken)
    room.put(b"must survive", durable=True)
    assert [fault is None for _, _, fault in room.finished] == [True, False]
    assert room.names() == ["00000001"]


@pytest.mark.parametrize(
    ("damage", "what"), [("cut", "cut short"), ("flip", "checksum"), ("gone", "No such file")]
)
def test_a_damaged_file_is_not_handed_out_whole(room: Room, damage: str, what: str) -> None:
    data = os.urandom(300_000)
    number = room.put(data)
    path = room.files.path(number)
    if damage == "cut":
        os.truncate(path, 200_000)
    elif damage == "flip":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        path.unlink()
    got = room.take(number, len(data), crc32c(data))
    assert what in str(got[-1])
    assert sum(len(block) for block in got if isinstance(block, bytes)) < len(data)


def test_a_start_keeps_what_is_referred_to(tmp_path: Path) -> None:
    first = Room(tmp_path)
    numbers = [first.put(bytes([each]) * 10, durable=True) for each in range(3)]
    assert numbers == [1, 2, 3]
    first.files.close()
    (tmp_path / LARGE / "note.txt").write_text("somebody's own")
    second = Room(tmp_path, keep=(2,))
    assert second.names() == ["00000002", "note.txt"]
    assert second.put(b"new") == 4
    second.files.close()


def test_a_closed_room_removes_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path)
    number = room.put(b"stays", durable=True)
    room.files.close()
    room.files.remove(number)
    assert room.names() == ["00000001"]


def test_the_stores_notes_name_the_files_and_what_they_hold(room: Room, tmp_path: Path) -> None:
    data = os.urandom(1000)
    number = room.put(data)
    value = (1000).to_bytes(8, "little") + crc32c(data).to_bytes(4, "little")
    notes = {f"large/{number}/7/a/b": value, f"large/{number}/9/c": value, "large/5/1/d": b"", "sent/x": b"*"}
    [file] = larges_of(notes, tmp_path)
    verify(file)
    with pytest.raises(DamagedStore, match="should have 1001 bytes"):
        verify(LargeFile(number, file.path, 1001, file.checksum), whole=False)
    with pytest.raises(DamagedStore, match="checksum"):
        verify(LargeFile(number, file.path, 1000, 1))
    file.path.unlink()
    with pytest.raises(DamagedStore, match="missing"):
        verify(file, whole=False)
