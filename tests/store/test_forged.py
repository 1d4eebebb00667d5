"""Heads of groups, records and rows that no broker wrote, though their checksums are right."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from broker.errors import OperatorError
from broker.store.check import check
from broker.store.directory import DIRECTORY, CheckpointChange, Directory
from broker.store.disk import DiskStore
from broker.store.faults import DamagedStore
from broker.store.journal import group_at
from broker.store.port import DURABLE
from broker.store.records import DEFINE, FORGET, MESSAGE, NOTE, UPDATE, crc32c
from tests.store.test_port import Kept

HEAD = struct.Struct("<8sQQQIIIIQQ")


def forged(length: int, records: int = 0, chain: int = 0) -> bytes:
    """A group of file 1 that says it has so many bytes of records."""
    fields = (b"SLUICEGR", 1, 1, length, 1, records, 1)
    checksum = crc32c(HEAD.pack(*fields, 0, 0, chain))
    return HEAD.pack(*fields, checksum, 0, chain)


@pytest.mark.parametrize("length", [2**64 - 64, 2**64 - 4096 - 64 + 5, 2**63, 2**63 - 1, 2**40, 4096])
def test_a_length_beyond_the_file_is_none(length: int) -> None:
    data = bytes(4096) + forged(length) + bytes(960)
    found = group_at(data, 4096, 1)
    assert found is not None
    assert found.end == -1


def test_one_within_it_is_there() -> None:
    data = bytes(4096) + forged(0) + bytes(960)
    found = group_at(data, 4096, 1)
    assert found is not None
    assert found.end == 4096 + 64


def left(path: Path) -> DiskStore:
    """A store with a shelf and a message, all of it on disk."""
    kept = Kept("disk", path)
    assert isinstance(kept.store, DiskStore)
    kept.store.open_log("q", b"{}").append(1, DURABLE, 0, 0, b"x")
    kept.sync()
    return kept.store


def assert_refused(path: Path) -> None:
    """With its place, as often as it is tried, by a broker and by who looks after it."""
    for _ in range(2):
        with pytest.raises(DamagedStore, match="byte"):
            DiskStore.open(path, file_bytes=1 << 20).abandon()
    with pytest.raises(DamagedStore, match="byte"):
        check(path)


@pytest.mark.parametrize("payload", [b"\2\0\xff\xfe", b"\3\0\xc3\xa9\xc3", b"\1\0\xf0value"])
@pytest.mark.parametrize("kind", [NOTE, DEFINE])
def test_a_name_that_is_no_text_is_refused(tmp_path: Path, kind: int, payload: bytes) -> None:
    store = left(tmp_path)
    store.record(kind, 7, 0, payload)
    store.seal()
    store.abandon()
    assert_refused(tmp_path)


@pytest.mark.parametrize("payload", [b"", b"\1", b"\xff\xff", b"\4\0q"])
@pytest.mark.parametrize("kind", [NOTE, DEFINE, MESSAGE, FORGET, UPDATE, 99])
@pytest.mark.parametrize("shelf", [1, 9])
def test_a_record_that_is_short_is_read_or_refused(
    tmp_path: Path, kind: int, payload: bytes, shelf: int
) -> None:
    store = left(tmp_path)
    store.record(kind, shelf, 5, payload)
    store.seal()
    store.abandon()
    with suppress(DamagedStore):
        DiskStore.open(tmp_path, file_bytes=1 << 20).abandon()


@pytest.mark.parametrize("numbers", [(5, 3), (2, 2**63 - 1, 2)])
def test_messages_out_of_order_are_refused(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    store = left(tmp_path)
    for number in numbers:
        store.record(MESSAGE, 1, number, b"x")
    store.seal()
    store.abandon()
    with pytest.raises(OperatorError):
        DiskStore.open(tmp_path, file_bytes=1 << 20).abandon()


@pytest.mark.parametrize("note", ["large/x", "large/1/2/q", "large//"])
def test_a_large_message_s_note_that_says_nothing_is_refused(tmp_path: Path, note: str) -> None:
    store = left(tmp_path)
    store.note(note, b"no size")
    store.seal()
    store.abandon()
    assert_refused(tmp_path)


class Forger(Directory):
    """Writes rows as they are, with the checksums they need."""

    rows: tuple[tuple[str, bytes, bytes], ...] = ()

    def _values(self, change: CheckpointChange) -> Iterator[tuple[Any, bytes, bytes]]:
        tables = {"shelves": self._shelves, "pages": self._pages, "notes": self._notes}
        for table, key, value in self.rows:
            yield tables[table], key, crc32c(value).to_bytes(4, "little") + value


def page(last: int = 8, offset: int = 0, nbytes: int = 4096, bits: bytes = b"\1", updates: int = 0) -> bytes:
    """A page's row of shelf 1, from number 1 on."""
    return struct.pack("<QQQQQI", last, offset, nbytes, 1, len(bits), updates) + bits


ONE = (1).to_bytes(4, "big") + (1).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("shelves", b"\0\0\0\1", b""),
        ("shelves", b"\0\0\0\1", struct.pack("<QH", 1, 2) + b"\xff\xfe"),
        ("pages", ONE, b""),
        ("pages", ONE, page(last=0)),
        ("pages", ONE, page(last=2**64 - 1)),
        ("pages", ONE, page(updates=3)),
        ("pages", ONE, page(updates=1) + b"short"),
        ("pages", ONE, page(offset=2**64 - 4096)),
        ("pages", ONE, page(nbytes=2**63)),
        ("pages", ONE[:4], page()),
        ("pages", b"\0\0\0\7" + ONE[4:], page()),
        ("notes", b"n", b"\2\0\0\0\xff\xfe"),
    ],
)
def test_a_row_that_can_t_be_one_is_refused(tmp_path: Path, table: str, key: bytes, value: bytes) -> None:
    left(tmp_path).close()
    directory = Forger(tmp_path / DIRECTORY)
    directory.rows = ((table, key, value),)
    meta = directory.meta()
    directory.write(CheckpointChange(meta))
    directory.close()
    with pytest.raises(DamagedStore, match="byte"):
        DiskStore.open(tmp_path, file_bytes=1 << 20).abandon()
