"""Heads of groups that nobody wrote, though their checksums are right."""

from __future__ import annotations

import struct

import pytest

from broker.records import crc32c
from broker.store.journal import group_at

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
