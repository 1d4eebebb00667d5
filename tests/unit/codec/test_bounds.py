"""What is decoded is looked at before: its depth, how many values, and counts that agree with sizes."""

from __future__ import annotations

import pytest

from broker.codec.bounds import is_bounded

NULLS = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"


def listed(*items: bytes) -> bytes:
    body = b"".join(items)
    return b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + body


def within(levels: int) -> bytes:
    value = b"\x40"
    for _ in range(levels):
        value = listed(value)
    return value


@pytest.mark.parametrize(
    "good",
    [
        b"",
        b"\x40\x41\x42\x43\x44\x45",
        b"\x56\x01\x50\x07\x60\x00\x01\x70\x00\x00\x00\x01",
        b"\x80" + bytes(8) + b"\x94" + bytes(16) + b"\x98" + bytes(16),
        b"\xa0\x02ab\xa1\x01x\xa3\x01y\xb0\x00\x00\x00\x01z",
        b"\xc0\x03\x02\x40\x41",
        b"\xc1\x05\x02\xa1\x01a\x40",
        b"\xe0\x06\x02\xa1\x01a\x01b",
        b"\xe0\x02\x09\x40",
        b"\xe0\x05\x02\x00\x53\x07\x40",
        b"\x00\x53\x24\x45",
        b"\x00\xa3\x01d\xc0\x01\x00",
    ],
)  # fmt: skip
def test_values_that_are_whole(good: bytes) -> None:
    assert is_bounded(good, 8, 100)


@pytest.mark.parametrize(
    "bad",
    [
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x24",
        b"\x00\x00\x53\x24\x40\x45",
        b"\x00\x45\x40\xff",
        b"\x00\xc0\x01\x00\x40",
        b"\x70\x00\x00",
        b"\x10",
        b"\xa0\x05abc",
        b"\xb0\xff\xff\xff\xff",
        b"\xc0\x00",
        b"\xc0\x01\x01",
        b"\xc0\x03\x01\x40\x41",
        b"\xc0\x02\x05\x40",
        b"\xd0\x00\x00\x00\x03\x00\x00\x00",
        b"\xe0\x01\x00",
        b"\xe0\x03\x01\x40\x40",
        b"\xe0\x02\x05\x50",
        NULLS,
    ],
)
def test_values_that_are_not(bad: bytes) -> None:
    assert not is_bounded(bad, 8, 100)


def test_depth_is_counted_with_the_outermost() -> None:
    assert is_bounded(within(8), 8, 100)
    assert not is_bounded(within(9), 8, 100)
    assert not is_bounded(within(100_000), 8, 1 << 40)
    assert not is_bounded(b"\x00\x40" * 9 + b"\x40", 8, 100)


def test_elements_are_counted_also_those_of_no_size() -> None:
    assert is_bounded(listed(*[b"\x40"] * 99), 8, 100)
    assert not is_bounded(listed(*[b"\x40"] * 100), 8, 100)
    assert is_bounded(b"\xe0\x02\x63\x40", 8, 100)
    assert not is_bounded(b"\xe0\x02\x64\x40", 8, 100)
    assert not is_bounded(b"\x40" * 101, 8, 100)


def test_elements_of_one_size_are_counted_and_not_walked() -> None:
    """However many: a minute would not be enough to look at each."""
    most = 1 << 32
    nothing = b"\xf0" + (5).to_bytes(4, "big") + (3_000_000_000).to_bytes(4, "big") + b"\x40"
    assert is_bounded(nothing, 8, most)
    assert not is_bounded(nothing + nothing, 8, most)
    four_bytes = b"\xe0\x0a\x02\x70"
    assert is_bounded(four_bytes + bytes(8), 8, most)
    assert not is_bounded(four_bytes + bytes(7), 8, most)
