"""A message that tells its offset."""

from __future__ import annotations

import pytest
from proton import Data, Described, Message, symbol, ulong

from broker.codec import message as codec
from broker.codec.offsets import OFFSET, OFFSET_SPEC, STREAM_OFFSET, offset_filter, with_offset
from broker.constants import STAMP_BYTES


def decoded(data: bytes) -> Message:
    found = Message()
    found.decode(data)
    return found


@pytest.mark.parametrize("offset", [0, 1, 255, 1 << 32, (1 << 63) - 1])
@pytest.mark.parametrize("annotations", [None, {}, {symbol("x-opt-mine"): "kept"}])
def test_a_message_tells_its_offset_and_keeps_the_rest(
    offset: int, annotations: dict[symbol, str] | None
) -> None:
    sent = Message(body="text", durable=True, id=7, properties={"a": 1}, annotations=annotations)
    data = with_offset(bytes(sent.encode()), offset)
    assert codec.scan(data) >= 0
    found = decoded(data)
    assert found.annotations == {**(annotations or {}), symbol(OFFSET): offset, symbol(STREAM_OFFSET): offset}
    assert isinstance(found.annotations[symbol(OFFSET)], ulong)
    assert (found.body, found.durable, found.id) == ("text", True, 7)
    assert found.properties == {"a": 1}


def test_a_senders_word_for_its_offset_is_replaced() -> None:
    sent = Message(body=b"x", annotations={symbol(OFFSET): "mine", symbol(STREAM_OFFSET): ulong(9)})
    found = decoded(with_offset(bytes(sent.encode()), 3))
    assert found.annotations == {symbol(OFFSET): 3, symbol(STREAM_OFFSET): 3}


@pytest.mark.parametrize("start", ["first", "10m", 0, 1 << 40])
def test_a_filter_says_where_a_reader_begins(start: str | int) -> None:
    made = Data()
    made.decode(offset_filter(start))
    made.rewind()
    made.next()
    key = symbol(OFFSET_SPEC)
    assert made.get_object() == {key: Described(key, start)}


BODY = b"\x00\x53\x77\xa0\x01x"


@pytest.mark.parametrize(
    "annotations",
    [
        b"",
        b"\x00\x53\x72\x40",
        b"\x00\x53\x72\xc1\x01\x00",
        b"\x00\x53\x72\xc1\x06\x02\xa3\x01a\x54\x01",
        b"\x00\x53\x72\xd1\x00\x00\x00\x04\x00\x00\x00\x00",
        b"\x00\x80" + bytes(7) + b"\x72\xc1\x01\x00",
    ],
)
def test_it_makes_a_message_longer_by_no_more_than_is_known(annotations: bytes) -> None:
    data = annotations + BODY
    found = with_offset(data, 5)
    assert str(decoded(found).annotations).count(OFFSET) == 1
    grown = len(found) - len(data)
    assert grown <= STAMP_BYTES
    assert annotations or grown == STAMP_BYTES
    # Once more, as where a stream is copied: nothing is added.
    assert len(with_offset(found, 6)) - len(found) <= STAMP_BYTES
