"""Bytes put into a message: beside Python's own slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.splice import with_numbers


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
