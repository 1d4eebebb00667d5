"""Records of the log as bytes."""

from __future__ import annotations

import pytest

from broker.cluster.records import GROUPS, START, BrokenRecord, cell_number, decode, encode, joined, split


def test_a_record_comes_back_as_it_was() -> None:
    data, digest = encode(GROUPS, cell_number("main"), 4, 9, b"chained!", b"payload", 1, 3)
    record = decode(77, data)
    assert (record.kind, record.cell, record.epoch, record.group) == (GROUPS, cell_number("main"), 4, 9)
    assert (record.chain, record.payload, record.digest) == (b"chained!", b"payload", digest)
    assert (record.part, record.parts) == (1, 3)
    assert data.startswith(b"SLUICELG\x01")


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
