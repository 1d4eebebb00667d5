"""Records of the log as bytes."""

from __future__ import annotations

import pytest

from broker.cluster.records import (
    GROUPS,
    KINDS,
    START,
    BrokenRecord,
    cell_number,
    decode,
    encode,
    joined,
    split,
)
from broker.store.records import crc32c


def test_a_record_comes_back_as_it_was() -> None:
    data, digest = encode(GROUPS, cell_number("main"), 4, 9, b"chained!", b"payload", 1, 3)
    record = decode(77, data)
    assert (record.kind, record.cell, record.epoch, record.group) == (GROUPS, cell_number("main"), 4, 9)
    assert (record.chain, record.payload, record.digest) == (b"chained!", b"payload", digest)
    assert (record.part, record.parts) == (1, 3)
    assert data.startswith(b"SLUICELG\x02")


def test_groups_of_before_are_read_and_those_of_a_newer_broker_are_refused_as_such() -> None:
    group, _ = encode(GROUPS, 1, 4, 9, START, b"payload")
    assert decode(77, of_version(group, 1)).payload == b"payload"
    for version in (0, 3):
        with pytest.raises(
            BrokenRecord, match=f"a record of version {version} and kind 1 is of a newer broker"
        ):
            decode(77, of_version(group, version))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != GROUPS])
def test_a_member_of_before_reads_all_records_but_groups(kind: int) -> None:
    # So it knows who owns the cell, and an owner of before that it was deposed.
    data, _ = encode(kind, 1, 4, 9, START)
    assert data.startswith(b"SLUICELG\x01")


def of_version(data: bytes, version: int) -> bytes:
    """Return the same record with another version in its head."""
    head = bytearray(data[:56])
    head[8] = version
    return bytes(head) + crc32c(bytes(head)).to_bytes(4, "little") + data[60:]


def test_every_flipped_bit_and_every_cut_is_seen() -> None:
    data, _ = encode(GROUPS, 1, 4, 9, START, b"payload")
    for at in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(BrokenRecord, match="position 77"):
            decode(77, bytes(damaged))
    for end in range(len(data)):
        with pytest.raises(BrokenRecord):
            decode(77, data[:end])
    with pytest.raises(BrokenRecord):
        decode(77, data + b"x")


def test_another_payload_head_or_chain_gives_another_digest() -> None:
    digests = {
        encode(GROUPS, cell, epoch, group, chain, payload)[1]
        for cell in (1, 2)
        for epoch in (1, 2)
        for group in (1, 2)
        for chain in (START, b"chained!")
        for payload in (b"", b"a")
    }
    assert len(digests) == 32


@pytest.mark.parametrize("groups", [[], [b""], [b"a"], [b"one", b"", b"three" * 1000]])
def test_groups_are_joined_and_split(groups: list[bytes]) -> None:
    assert list(split(1, joined(groups))) == groups


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_a_group_that_is_not_whole_is_damage(cut: int) -> None:
    with pytest.raises(BrokenRecord):
        list(split(1, joined([b"abc"])[:-cut] if cut < 6 else b"\x01\x00\x00"))
