"""Bytes put into a message: beside Python's own slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.splice import with_messages, with_numbers


@given(
    st.binary(max_size=300), st.integers(0, 300), st.binary(max_size=40), st.binary(max_size=40), st.data()
)
def test_it_is_what_slices_and_a_join_make(
    data: bytes, at: int, first: bytes, second: bytes, drawn: st.DataObject
) -> None:
    at = min(at, len(data))
    number = drawn.draw(st.integers(0, (1 << 64) - 1))
    encoded = number.to_bytes(8, "big")
    expected = b"".join((data[:at], first, encoded, second, encoded, data[at:]))
    assert with_numbers(data, at, first, second, number) == expected


@pytest.mark.parametrize("at", [-1, 4])
def test_a_place_outside_is_refused(at: int) -> None:
    with pytest.raises(IndexError, match=f"{at} is no place in 3 bytes"):
        with_numbers(b"abc", at, b"", b"", 0)


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_number_of_more_than_eight_bytes_is_refused(number: int) -> None:
    with pytest.raises(OverflowError):
        with_numbers(b"abc", 0, b"", b"", number)


@given(st.binary(max_size=50), st.lists(st.binary(max_size=300), max_size=20))
def test_a_data_section_has_the_number_the_lengths_and_the_messages(
    head: bytes, messages: list[bytes]
) -> None:
    sizes = [len(messages), *map(len, messages)]
    data = b"".join([*(size.to_bytes(4, "big") for size in sizes), *messages])
    section = b"\x00\x53\x75\xb0" + len(data).to_bytes(4, "big")
    assert with_messages(head, messages) == head + section + data


def test_what_is_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError):
        with_messages(b"", [b"a", "b"])  # type: ignore[list-item]
