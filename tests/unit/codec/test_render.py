"""Messages as JSON can say them: what is well formed in words, what isn't in digits, all bounded."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Described,
    Message,
    byte,
    char,
    float32,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

from broker.codec.render import BODY_BYTES, described


def encoded(body: Any = None, **fields: Any) -> bytes:
    return bytes(Message(body=body, **fields).encode())


def body_of(value: object) -> object:
    return described(encoded(value))["body"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("text", "text"),
        ("t" * 300, "t" * 300),
        (b"bytes", "bytes"),
        (b"\xff", "\\xff"),
        (symbol("word"), "word"),
        (7, 7),
        (-7, -7),
        (1 << 40, 1 << 40),
        (ubyte(200), 200),
        (ushort(60_000), 60_000),
        (uint(0), 0),
        (uint(4_000_000_000), 4_000_000_000),
        (ulong(1 << 63), 1 << 63),
        (byte(-1), -1),
        (True, True),
        (False, False),
        (1.5, 1.5),
        (float32(0.25), 0.25),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (char("ä"), "ä"),
        (UUID(int=5), str(UUID(int=5))),
        ([1, "a", None, [2]], [1, "a", None, [2]]),
        ({"a": 1, "b": {"c": [True]}}, {"a": 1, "b": {"c": [True]}}),
        ({1: 2}, {"1": 2}),
        (Described(symbol("x:y"), "inside"), "inside"),
        (Array(UNDESCRIBED, Data.INT, 1, 2, 300), [1, 2, 300]),  # type: ignore[arg-type]
        (Array(symbol("x:y"), Data.STRING, "a", "bc"), ["a", "bc"]),
    ],
)
def test_values(value: object, wanted: object) -> None:
    assert body_of(value) == wanted


def test_a_time_is_written_as_one() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert body_of(timestamp(int(moment.timestamp() * 1000))) == "2026-01-02T03:04:05.678+00:00"
    assert body_of(timestamp(1 << 62)) == 1 << 62


def test_sections_by_name() -> None:
    found = described(
        encoded(
            "hello",
            durable=True,
            priority=7,
            ttl=5,
            id="m1",
            subject="s",
            reply_to="r",
            content_type="text/plain",
            properties={"colour": "red", "n": 7},
            annotations={"x-opt-a": 1},
        )
    )
    header, properties = found["header"], found["properties"]
    assert isinstance(header, dict)
    assert isinstance(properties, dict)
    assert (header["durable"], header["priority"], header["ttl"]) == (True, 7, 5000)
    assert properties["message_id"] == "m1"
    assert properties["content_type"] == "text/plain"
    assert found["application_properties"] == {"colour": "red", "n": 7}
    assert found["message_annotations"] == {"x-opt-a": 1}
    assert (found["body_kind"], found["body"], found["body_cut"]) == ("value", "hello", False)


def test_large_parts_are_cut() -> None:
    found = described(encoded("x" * 1_000_000))
    assert (found["body"], found["body_cut"]) == ("x" * BODY_BYTES, True)
    found = described(encoded(["x" * 1000] * 1000))
    assert found["body_cut"] is True
    assert len(str(found["body"])) == 2 * BODY_BYTES
    found = described(encoded("body", properties={str(n): "x" * 1000 for n in range(100)}))
    assert str(found["application_properties"]).endswith(" bytes)")
    assert found["body"] == "body"


def test_what_is_cut_off_shows_what_there_is() -> None:
    whole = encoded("x" * 1000, durable=True)
    found = described(whole[:100])
    assert found["header"]
    assert str(found["body"]).startswith("xxx")
    nested: object = "deep"
    for _ in range(40):
        nested = [nested]
    assert "encoded" in described(encoded(nested))


@given(st.binary(max_size=200))
def test_nothing_is_too_strange(data: bytes) -> None:
    json.dumps(described(data), allow_nan=False)


@given(st.binary(max_size=60), st.sampled_from([0x70, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78]))
def test_no_section_is_too_strange(data: bytes, code: int) -> None:
    json.dumps(described(bytes((0, 0x53, code)) + data), allow_nan=False)


def test_an_array_that_claims_to_be_endless_takes_no_memory() -> None:
    # Four thousand million items of no bytes each.
    array = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"
    assert "encoded" in described(b"\x00\x53\x77" + array)


def test_a_list_that_says_it_has_more_than_its_bytes_takes_nothing_from_behind_it() -> None:
    found = described(b"\x00\x53\x73\xd0\x00\x00\x00\x06\x00\x00\xff\xff\x40\x40" + b"\x40" * 70_000)
    assert found.keys() == {"encoded"}


def test_half_of_a_surrogate_pair_is_no_character() -> None:
    found = described(b"\x00\x53\x77\x73\x00\x00\xd8\x00")
    assert found["body"] == "0000d800"
