"""Blocks of a stream: what is encoded is decoded, from any message on, and no changed bit passes."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store.blocks import (
    HEAD_BYTES,
    MOST_BLOCK_BYTES,
    TAIL_BYTES,
    BlockWalk,
    StreamMessage,
    decode,
    encode,
    end_of,
    tail_size,
)
from broker.store.records import crc32c

MESSAGES = st.lists(st.binary(max_size=60), min_size=1, max_size=12)
BIG = 1 << 30


def whole(messages: list[bytes], block_bytes: int = BIG, first: int = 7) -> bytes:
    return encode(messages, first, 1000, 2000, block_bytes)[0]


@given(MESSAGES, st.integers(1, 200), st.data())
def test_what_is_encoded_is_decoded_from_any_message_on(
    messages: list[bytes], block_bytes: int, data: st.DataObject
) -> None:
    encoded, places = encode(messages, 7, 1000, 2000, block_bytes)
    skipped = data.draw(st.integers(0, len(messages) - 1))
    first, at = max(each for each in places if each[0] <= 7 + skipped)
    found: list[StreamMessage] = []
    answer = decode(encoded, at, first, 7 + skipped, BIG, found)
    assert found == [(7 + n, 1000, text) for n, text in enumerate(messages)][skipped:]
    size = sum(len(text) for text in messages[skipped:])
    assert answer == (len(encoded), 7 + len(messages), 7 + len(messages), size, HEAD_BYTES, None)


@given(MESSAGES, st.integers(1, 200))
def test_a_block_takes_so_many_bytes_or_one_message(messages: list[bytes], block_bytes: int) -> None:
    encoded, places = encode(messages, 0, 0, 0, block_bytes)
    ends = [*(offset for offset, _ in places[1:]), len(messages)]
    for (first, at), end in zip(places, ends, strict=True):
        lengths = [4 + len(text) for text in messages[first:end]]
        assert len(lengths) == 1 or sum(lengths) <= block_bytes
        assert encoded[at : at + 4] == b"SLSB"
        assert at % 8 == 0


@given(MESSAGES, st.integers(0, 300))
def test_a_read_has_no_more_than_it_was_asked_for_but_one_message(messages: list[bytes], most: int) -> None:
    encoded = whole(messages, 100)
    at, first, offset = 0, 7, 7
    found: list[StreamMessage] = []
    while offset < 7 + len(messages):
        more: list[StreamMessage] = []
        at, first, offset, taken, _, fault = decode(encoded, at, first, offset, most, more)
        assert fault is None
        assert taken == sum(len(text) for _, _, text in more)
        assert taken <= most or len(more) == 1
        assert more
        found += more
    assert [text for _, _, text in found] == messages


def test_a_message_that_is_too_many_stays_for_the_next_read() -> None:
    encoded = whole([b"a" * 10, b"b" * 10])
    found = [(0, 0, b"there is one already")]
    assert decode(encoded, 0, 7, 7, 9, found) == (0, 7, 7, 0, 0, None)
    assert decode(encoded, 0, 7, 7, 19, found) == (0, 7, 8, 10, 0, None)


@given(MESSAGES, st.data())
def test_bytes_that_are_not_all_there_are_asked_for(messages: list[bytes], data: st.DataObject) -> None:
    encoded = whole(messages)
    size = data.draw(st.integers(0, len(encoded) - 1))
    need = len(encoded) if size >= HEAD_BYTES else HEAD_BYTES
    found: list[StreamMessage] = []
    assert decode(encoded[:size], 0, 7, 7, BIG, found) == (0, 7, 7, 0, need, None)
    walk = BlockWalk(0, 7, whole=True)
    assert not walk.go(encoded[:size])
    assert (walk.position, walk.need, walk.fault) == (0, need, None)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_no_changed_bit_passes() -> None:
    encoded = whole([b"some text", b"", b"and more of it"])
    for bit in range(len(encoded) * 8):
        changed = flipped(encoded, bit)
        found: list[StreamMessage] = []
        assert decode(changed, 0, 7, 7, BIG, found)[5] is not None
        assert not found
        walk = BlockWalk(0, 7, whole=True)
        walk.go(changed)
        assert walk.fault is not None
        assert walk.position == 0
        if bit < HEAD_BYTES * 8:
            walk = BlockWalk(0, 7)
            walk.go(changed)
            assert walk.fault is not None


def test_the_end_of_a_block_says_where_it_is() -> None:
    encoded = whole([b"some text", b"", b"and more of it"])
    tail = encoded[-TAIL_BYTES:]
    assert tail_size(tail) == len(encoded)
    assert end_of(encoded[:HEAD_BYTES], tail) == (10, 2000)
    for bit in range(TAIL_BYTES * 8):
        assert end_of(encoded[:HEAD_BYTES], flipped(tail, bit)) is None
    for bit in range(HEAD_BYTES * 8):
        assert end_of(flipped(encoded[:HEAD_BYTES], bit), tail) is None
    assert end_of(encoded[: HEAD_BYTES - 1], tail) is None
    assert tail_size(tail[1:]) == 0


def test_the_format_is_the_one_that_is_written_down() -> None:
    encoded = encode([b"ab", b"cde"], 7, 1000, 2000, BIG)[0]
    payload = struct.pack("<II", 2, 3) + b"abcde\0\0\0"
    head = struct.pack("<4sHHQIIQQI", b"SLSB", 1, 0, 7, 2, 13, 1000, 2000, crc32c(payload))
    checksum = struct.pack("<I", crc32c(head))
    assert encoded == head + checksum + payload + struct.pack("<I", 48 + 16 + 8) + checksum


def sealed(head: bytes) -> bytes:
    return head + struct.pack("<I", crc32c(head))


def test_a_head_that_contradicts_itself_is_refused_though_its_checksum_is_right() -> None:
    for count, length in ((0, 8), (3, 8), (1, 3)):
        head = sealed(struct.pack("<4sHHQIIQQI", b"SLSB", 1, 0, 7, count, length, 0, 0, 0))
        assert decode(head + bytes(100), 0, 7, 7, BIG, [])[5] == "a block's head contradicts itself"


def test_lengths_that_are_not_the_payloads_are_refused_though_the_checksum_is_right() -> None:
    payload = struct.pack("<II", 2, 9) + b"abcde\0\0\0"
    head = sealed(struct.pack("<4sHHQIIQQI", b"SLSB", 1, 0, 7, 2, 13, 0, 0, crc32c(payload)))
    block = head + payload + struct.pack("<I", 72) + head[-4:]
    assert decode(block, 0, 7, 7, BIG, [])[5] == "a block's messages are longer or shorter than it is"


def test_a_newer_format_is_named() -> None:
    head = sealed(struct.pack("<4sHHQIIQQI", b"SLSB", 2, 0, 7, 1, 8, 0, 0, 0))
    walk = BlockWalk(0, 7)
    assert not walk.go(head)
    assert (walk.fault, walk.is_foreign) == ("a block has format 2, this broker reads 1", True)


def test_a_block_of_another_place_is_refused() -> None:
    encoded = whole([b"text"])
    assert decode(encoded, 0, 6, 6, BIG, [])[5] == "the block there begins with offset 7, not 6"
    walk = BlockWalk(0, 8)
    assert not walk.go(encoded)
    assert walk.fault == "the block there begins with offset 7, not 8"


def test_a_message_that_is_no_bytes_or_too_long_is_refused() -> None:
    with pytest.raises(TypeError, match="not bytearray"):
        encode([bytearray(b"x")], 0, 0, 0, 10)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="too long"):
        encode([bytes(MOST_BLOCK_BYTES)], 0, 0, 0, 10)


@given(MESSAGES, st.integers(40, 400), st.integers(1, 300), st.data())
def test_a_walk_finds_offsets_and_times_whatever_its_windows_are(
    messages: list[bytes], window: int, step: int, data: st.DataObject
) -> None:
    encoded = b"".join(
        encode([text], number, 1000 * number, 1000 * number, BIG)[0] for number, text in enumerate(messages)
    )
    wanted = data.draw(st.integers(0, len(messages) - 1))
    for how in ({"offset": wanted}, {"time_ms": max(1000 * wanted - 999, 0)}):
        walk = BlockWalk(0, 0, step=step)
        while not walk.go(encoded[walk.position : walk.position + max(window, walk.need)], **how):
            assert walk.fault is None
        assert walk.next_offset == wanted
        positions = [position for _, position, _ in walk.marks]
        assert all(b - a >= step for a, b in itertools.pairwise(positions))
        for offset, position, latest_ms in walk.marks:
            found: list[StreamMessage] = []
            decode(encoded, position, offset, offset, 0, found)
            assert found == [(offset, latest_ms, messages[offset])]
