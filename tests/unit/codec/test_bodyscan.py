"""Bodies followed piece by piece: the same verdict as for a message in memory, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message

from broker.codec import message
from broker.codec.bodyscan import BodyScan, body_start

SHORT = -2
MALFORMED = -1

DATA = b"\x00\x53\x75"
SEQUENCE = b"\x00\x53\x76"
VALUE = b"\x00\x53\x77"
FOOTER = b"\x00\x53\x78"
LONG_CODE = b"\x00\x80" + bytes(7) + b"\x75"
SYMBOL_CODE = b"\x00\xa3\x10amqp:data:binary"

WHOLE = [
    DATA + b"\xa0\x03abc",
    DATA + b"\xb0\x00\x00\x01\x00" + bytes(256),
    DATA + b"\xa0\x00" + DATA + b"\xa0\x01a",
    DATA + b"\xa0\x01a" + FOOTER + b"\xc1\x01\x00",
    LONG_CODE + b"\xa0\x02ab",
    SYMBOL_CODE + b"\xa0\x02ab" + DATA + b"\xa0\x01c",
    SEQUENCE + b"\xc0\x03\x01\x52\x05" + SEQUENCE + b"\x45",
    VALUE + b"\xa1\x03abc",
    VALUE + b"\x40",
    VALUE + b"\x00\x00\xa3\x01a\xa3\x01b\x80" + bytes(8),
    VALUE + b"\x98" + bytes(16),
    FOOTER + b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00",
]
BROKEN = [
    DATA + b"\xa1\x03abc",
    VALUE + b"\x40" + VALUE + b"\x40",
    DATA + b"\xa0\x00" + VALUE + b"\x40",
    FOOTER + b"\xc1\x01\x00" + DATA + b"\xa0\x00",
    DATA + b"\xa0\x00" + b"\x00\x53\x70\x45",
    b"\x01\x53\x75\xa0\x00",
    b"\x00\x53\x79\x40",
    VALUE + b"\x3f",
    VALUE + b"\x00" * 40 + b"\x40" * 40,
]


def verdict(body: bytes, cuts: list[int]) -> bool:
    scan = BodyScan()
    at = 0
    for cut in [*sorted(min(cut, len(body)) for cut in cuts), len(body)]:
        if not scan.feed(body[at:cut]):
            return False
        at = cut
    return scan.is_whole()


@given(st.sampled_from(WHOLE), st.lists(st.integers(0, 280), max_size=8))
def test_a_body_is_whole_however_it_is_cut(body: bytes, cuts: list[int]) -> None:
    assert message.scan(body) >= 0
    assert verdict(body, cuts)
    assert verdict(body, list(range(len(body))))


@given(st.sampled_from(BROKEN), st.lists(st.integers(0, 280), max_size=8))
def test_a_broken_one_is_not(body: bytes, cuts: list[int]) -> None:
    assert message.scan(body) < 0
    assert not verdict(body, cuts)


@pytest.mark.parametrize("body", WHOLE)
def test_a_body_cut_short_is_not_whole(body: bytes) -> None:
    whole_ends = {len(b) for b in (body,)} | {
        at for at in range(1, len(body)) if message.scan(body[:at]) >= 0
    }
    for at in range(len(body)):
        assert verdict(body[:at], []) == (at in whole_ends)


def test_a_descriptor_without_end_is_no_body() -> None:
    scan = BodyScan()
    assert scan.feed(VALUE + b"\x00\xb3\x00\x10\x00\x00")
    assert not scan.feed(bytes(8192))


def test_where_the_body_begins() -> None:
    encoded = bytes(
        Message(
            body=b"x" * 100, durable=True, id="a", annotations={"a": 1}, properties={"k": "v"}, inferred=True
        ).encode()
    )
    start = body_start(encoded)
    assert encoded[start : start + 3] == DATA
    for at in range(start + 2):
        assert body_start(encoded[:at]) == SHORT
    assert body_start(DATA + b"\xa0\x00") == 0
    assert body_start(b"\x00\x53\x73\x45" + b"\x00\x53\x70\x45" + DATA) == MALFORMED
    assert body_start(b"\x00\x53\x70\xa0\x00") == MALFORMED
    assert body_start(b"no message") == MALFORMED
