"""Records: what is written is read, and no changed bit passes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store.logs import scan_group
from broker.store.records import (
    COPIES,
    COPY,
    FORGET,
    FORGOTTEN,
    MESSAGE,
    NOTE,
    Buffer,
    DamagedRecord,
    crc32c,
    crc32c_by_table,
    read,
)

# All of a record's head that its checksum is of.
HEAD = struct.Struct("<BBHIIQIIQ")


@given(st.binary(max_size=300))
def test_both_ways_to_the_checksum_agree(data: bytes) -> None:
    assert crc32c(data) == crc32c_by_table(data)


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720 appendix B.4's polynomial, the usual check value


RECORDS = st.lists(
    st.tuples(
        st.sampled_from([MESSAGE, FORGET]),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**62),
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**62),
        st.binary(max_size=50),
    ),
    min_size=1,
    max_size=8,
)


@given(RECORDS)
def test_what_is_written_is_read(records: list[tuple[int, int, int, int, int, int, bytes]]) -> None:
    buffer = Buffer()
    for record in records:
        buffer.add(*record)
    assert buffer.count == len(records)
    assert read(buffer.take()) == records
    assert (buffer.size, buffer.count) == (0, 0)


@given(RECORDS, st.data())
def test_no_flipped_bit_passes(
    records: list[tuple[int, int, int, int, int, int, bytes]], data: st.DataObject
) -> None:
    buffer = Buffer()
    for record in records:
        buffer.add(*record)
    blob = bytearray(buffer.take())
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = read(bytes(blob))
    except DamagedRecord:
        return
    # Only what pads a payload to eight bytes may change unseen: nobody reads it.
    assert found == records


def test_the_place_of_damage_is_told() -> None:
    buffer = Buffer()
    buffer.add(MESSAGE, 1, 1, 0, 0, 0, b"one")
    first = buffer.size
    buffer.add(MESSAGE, 1, 2, 0, 0, 0, b"two")
    blob = bytearray(buffer.take())
    blob[first + 8] ^= 1
    with pytest.raises(DamagedRecord, match=f"byte {first}"):
        read(bytes(blob))


def copy(back: int, seq: int = 2) -> bytes:
    """The head of a message that says its payload is so many bytes before it."""
    head = HEAD.pack(COPY, 1, 0, 7, 0, seq, 3, back, 1234)
    return crc32c(head).to_bytes(4, "little") + head


def test_a_copy_is_read_as_a_message_with_the_payload_it_points_to() -> None:
    buffer = Buffer()
    buffer.add(MESSAGE, 1, 1, 1, 0, 0, b"payload")
    size = buffer.size
    blob = buffer.take() + copy(size) + copy(size + 40, 3)
    message = (MESSAGE, 1, 1, 1, 0, 0, b"payload")
    copies = [(MESSAGE, 7, seq, 1, 3, 1234, b"payload") for seq in (2, 3)]
    assert read(blob) == [message, *copies]
    # Whoever reads from the middle of a group finds it, too.
    assert read(blob, size) == copies
    assert scan_group(blob)[0] == 3


@pytest.mark.parametrize("back", [0, 8, 39, 41, 47, 49, 1 << 31, (1 << 32) - 1])
def test_a_copy_that_points_to_no_message_is_damage(back: int) -> None:
    buffer = Buffer()
    buffer.add(MESSAGE, 1, 1, 1, 0, 0, b"payload")
    blob = buffer.take() + copy(back)
    for reads in (read, scan_group):
        with pytest.raises(DamagedRecord, match="byte 48"):
            reads(blob)


def test_a_copy_of_something_else_than_a_message_is_damage() -> None:
    buffer = Buffer()
    buffer.add(MESSAGE, 1, 1, 1, 0, 0, b"payload")
    buffer.add(NOTE, 1, 1, 1, 0, 0, b"payload")
    for blob in (buffer.take() + copy(48), copy(48)):
        with pytest.raises(DamagedRecord):
            read(blob)


def listed(*numbers: int) -> bytes:
    """A list's numbers, zigzag where they are differences is up to the caller."""
    found = bytearray()
    for number in numbers:
        while number >= 128:
            found.append(number & 127 | 128)
            number >>= 7
        found.append(number)
    return bytes(found)


def record(kind: int, payload: bytes, *, node: int = 0, seq: int = 0, back: int = 0) -> bytes:
    """A record with the checksum it needs."""
    head = HEAD.pack(kind, 1, 0, node, len(payload), seq, 3, back, 1234)
    checksum = crc32c(head + payload)
    return (checksum.to_bytes(4, "little") + head + payload).ljust(40 + -(-len(payload) // 8) * 8, b"\0")


def first() -> bytes:
    """A message of 48 bytes."""
    buffer = Buffer()
    buffer.add(MESSAGE, 1, 1, 1, 0, 0, b"payload")
    return buffer.take()


# Nodes 7, 5 and 300 at 10, 8 and 1,000.
PLACES = listed(14, 20, 3, 3, 590, 1984)


def test_copies_are_read_as_a_message_for_each_place_of_their_list() -> None:
    blob = first() + record(COPIES, PLACES, back=48)
    second = len(blob)
    blob += first() + record(COPIES, b"", node=second, seq=2, back=48)
    # The list stands 48 bytes before the second message.
    blob = blob[: second + 48] + record(COPIES, b"", node=second, seq=2, back=48)
    places = [(7, 10), (5, 8), (300, 1000)]
    found = read(blob)
    one = (MESSAGE, 1, 1, 1, 0, 0, b"payload")
    assert found == [
        one,
        *[(MESSAGE, node, seq, 1, 3, 1234, b"payload") for node, seq in places],
        one,
        *[(MESSAGE, node, seq + 2, 1, 3, 1234, b"payload") for node, seq in places],
    ]
    assert read(blob, node=5) == [each for each in found if each[1] == 5]
    assert read(blob, node=1) == [one, one]
    # Whoever reads from the middle of a group finds the list, too.
    assert read(blob, second + 48) == found[5:]
    assert scan_group(blob)[0] == 4


def test_a_range_is_read_as_one_settlement_each_and_its_bytes_are_kept() -> None:
    blob = record(FORGOTTEN, listed(14, 20, 3, 100, 3, 0, 1, 7))
    assert read(blob) == [
        *[(FORGET, 7, seq, 0, 0, size, b"") for seq, size in ((10, 33), (11, 33), (12, 34))],
        (FORGET, 5, 10, 0, 0, 7, b""),
    ]
    assert read(blob, node=5) == [(FORGET, 5, 10, 0, 0, 7, b"")]
    assert scan_group(blob)[0] == 1


@pytest.mark.parametrize(
    "bad",
    [
        record(COPIES, b"", back=48),
        record(COPIES, PLACES[:-1], back=48),
        record(COPIES, PLACES[:3], back=48),
        record(COPIES, PLACES, back=40),
        record(COPIES, PLACES, back=0),
        record(COPIES, b"", node=48, back=48),
        record(COPIES, b"", node=8, back=48),
        record(COPIES, b"", node=1 << 31, back=48),
        record(COPIES, PLACES, seq=1 << 62, back=48),
        record(COPIES, listed(1, 20), back=48),
        record(COPIES, listed(1 << 34, 20), back=48),
        record(COPIES, listed(14, 1), back=48),
        record(COPIES, b"\x0e" + b"\xff" * 10 + b"\1", back=48),
        record(FORGOTTEN, b""),
        record(FORGOTTEN, listed(14, 20, 3)),
        record(FORGOTTEN, listed(14, 20, 0, 100)),
        record(FORGOTTEN, listed(14, 20, 1 << 21, 100)),
        record(FORGOTTEN, listed(14, 20, 3, 1 << 63)),
    ],
)
def test_a_list_that_can_t_be_read_is_damage(bad: bytes) -> None:
    for reads in (read, scan_group):
        with pytest.raises(DamagedRecord, match="byte 48"):
            reads(first() + bad)


@given(st.lists(st.integers(0, 255), max_size=40).map(bytes), st.sampled_from([COPIES, FORGOTTEN]))
def test_any_list_is_read_or_refused(payload: bytes, kind: int) -> None:
    blob = first() + record(kind, payload, back=48)
    try:
        found = read(blob)
    except DamagedRecord:
        return
    assert len(found) > 1
    assert scan_group(blob)[0] == 2


def every_kind() -> tuple[bytes, list[int]]:
    """Return records of all kinds that refer to others or have lists, and where each begins."""
    blob, places = b"", []
    for each in (
        first(),
        copy(48),
        record(COPIES, PLACES, back=88),
        record(COPIES, b"", node=48, seq=2, back=136),
        record(FORGOTTEN, listed(14, 20, 3, 100, 3, 0, 1, 7)),
    ):
        places.append(len(blob))
        blob += each
    return blob, places


def test_no_flipped_bit_of_a_list_passes() -> None:
    blob, places = every_kind()
    assert places == [0, 48, 88, 136, 176]
    found = read(blob)
    assert len(found) == 1 + 1 + 3 + 3 + 4
    unseen = 0
    for bit in range(len(blob) * 8):
        changed = bytearray(blob)
        changed[bit // 8] ^= 1 << bit % 8
        damaged = max(place for place in places if place <= bit // 8)
        try:
            seen, place = read(bytes(changed)), -1
        except DamagedRecord as fault:
            seen, place = found, fault.offset
        assert seen == found
        if place < 0:
            # Only what pads a payload to eight bytes may change unseen: nobody reads it.
            unseen += 1
            assert scan_group(bytes(changed))[0] == len(places)
            continue
        assert place == damaged
        with pytest.raises(DamagedRecord, match=f"byte {damaged}$"):
            scan_group(bytes(changed))
    # The message has seven bytes, the lists have eight.
    assert unseen == 8


def test_a_list_that_is_cut_anywhere_is_damage() -> None:
    blob, places = every_kind()
    for end in range(1, len(blob)):
        if end in places:
            continue
        for reads in (read, scan_group):
            with pytest.raises(DamagedRecord):
                reads(blob[:end])


@given(
    st.sampled_from([COPY, COPIES, FORGOTTEN]),
    st.integers(0, 2**32 - 1) | st.integers(0, 200),
    st.integers(0, 2**64 - 1) | st.integers(0, 200),
    st.integers(0, 2**32 - 1) | st.integers(0, 200),
    st.sampled_from([b"", PLACES, listed(14, 20, 3, 100)]),
)
def test_any_head_with_the_right_checksum_is_read_or_refused(
    kind: int, node: int, seq: int, back: int, payload: bytes
) -> None:
    blob = every_kind()[0]
    forged = blob + record(kind, payload, node=node, seq=seq, back=back)
    try:
        found = read(forged)
    except DamagedRecord:
        with pytest.raises(DamagedRecord, match=f"byte {len(blob)}$"):
            scan_group(forged)
        return
    assert len(found) > len(read(blob))
    assert scan_group(forged)[0] == 6
