"""The group-id and the group-sequence of encoded messages, in every encoding that they may have."""

from __future__ import annotations

import pytest
from proton import Message

from broker.codec import message as codec
from broker.codec.grouping import PropertyKey, closes_group, group_id, shown, with_property
from tests.grouped import LAST, grouped

BODY = b"\x00\x53\x75\xa0\x01x"


def encoded(**fields: object) -> bytes:
    message = Message(body="x", **fields)
    return bytes(message.encode())


def test_the_group_id_of_protons_own_encoding() -> None:
    data = encoded(group_id="orders-7", group_sequence=3, durable=True, ttl=5, annotations={"x-opt-a": 1})
    assert group_id(data) == b"orders-7"
    assert not closes_group(data)


def test_none_has_no_group() -> None:
    for data in (BODY, encoded(), encoded(id="1"), grouped(""), grouped("", 5), b"\x00\x53\x73\x45" + BODY):
        assert group_id(data) == b""
        assert not closes_group(data)


@pytest.mark.parametrize("size", [1, 255])
def test_both_encodings_of_list_and_string_are_one_group(size: int) -> None:
    text = b"g" * size
    short = b"\xa1" + bytes((size,)) + text
    long = b"\xb1" + size.to_bytes(4, "big") + text
    for value in (short, long):
        fields = b"\x40" * 10 + value
        data = b"\x00\x53\x73\xd0" + (len(fields) + 4).to_bytes(4, "big") + (11).to_bytes(4, "big") + fields
        assert group_id(data + BODY) == text
    assert group_id(b"\x00\x80" + bytes(7) + b"\x73" + data[3:] + BODY) == text


def test_a_sequence_of_minus_one_closes_the_group() -> None:
    assert closes_group(grouped("a", LAST))
    assert closes_group(encoded(group_id="a", group_sequence=LAST))
    assert not closes_group(grouped("a", LAST - 1))
    assert not closes_group(grouped("a"))
    # uint in its short form is less than 256.
    fields = b"\x40" * 10 + b"\xa1\x01a" + b"\x52\xff"
    assert not closes_group(b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 12)) + fields + BODY)


def test_an_id_of_another_type_or_cut_off_is_none() -> None:
    fields = b"\x40" * 10 + b"\x52\x05"
    assert group_id(b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 11)) + fields + BODY) == b""
    whole = grouped("abc", 1)
    for end in range(len(whole)):
        group_id(whole[:end])
        closes_group(whole[:end])


def test_a_property_names_the_group() -> None:
    key = PropertyKey("customer")
    assert key.of(grouped("", customer="c1", other="x")) == b"c1"
    assert key.of(grouped("g", other="x")) == b""
    number = key.of(encoded(properties={"customer": 7}))
    assert number
    assert number != b"7"
    assert (shown(number), shown(b"c1")) == ("7", "c1")
    assert key.of(encoded(properties={"customer": None})) == b""


@pytest.mark.parametrize("properties", [None, {}, {"kept": 1}, {"mark": False, "kept": "x"}])
def test_a_mark_is_one_more_property(properties: dict[str, object] | None) -> None:
    data = encoded(group_id="g", properties=properties, durable=True)
    marked = with_property(data, "mark")
    assert codec.scan(marked) == codec.scan(data)
    found = Message()
    found.decode(marked)
    assert found.properties == {**(properties or {}), "mark": True}
    assert (found.body, found.group_id, found.durable) == ("x", "g", True)


def test_a_mark_on_a_message_without_other_sections() -> None:
    found = Message()
    found.decode(with_property(BODY, "mark"))
    assert found.properties == {"mark": True}
    assert codec.scan(with_property(b"\x00\x53\x70\x45", "mark")) >= 0
