"""Encoded messages become rows: every section, every type, and nothing of what is malformed."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from proton import Described, Message, char, int32, symbol, timestamp, ubyte, ulong
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    VariantType,
    VariantVal,
)

from pyspark_sluice import incoming
from pyspark_sluice.decode import Decoder
from pyspark_sluice.unpack import MalformedError, Pairs, read, skip

ID = uuid.UUID("2f1c9d3e-54a0-4d58-93a1-8f9a6b1f0c55")


TEXT = StringType()


def schema(**columns: DataType) -> StructType:
    found = StructType()
    for name, type_ in columns.items():
        found.add(name, type_)
    return found


def rows(messages: list[bytes], wanted: StructType, **given: Any) -> list[dict[str, Any]]:
    batch = Decoder(wanted, **given).batch(b"".join(messages), [len(message) for message in messages])
    batch.validate(full=True)
    return list(batch.to_pylist(maps_as_pydicts="strict"))


def test_every_column_of_a_message_that_has_everything() -> None:
    properties = {"text": "ä", "number": 5, "yes": True, "none": None}
    message = Message(body=b"\x00\xffbody", id="m-1", subject="s", address="orders", properties=properties)
    message.reply_to = "back"
    message.inferred = True
    message.correlation_id = 7
    message.user_id = b"me"
    message.group_id, message.group_sequence = "g", 3
    message.content_type, message.content_encoding = symbol("text/plain"), symbol("gzip")
    message.expiry_time, message.creation_time = 1700000000.5, 1600000000
    message.durable, message.priority, message.ttl, message.delivery_count = True, 9, 12.5, 2
    message.reply_to_group_id = "rg"
    message.annotations = {symbol("x-opt-why"): "because"}
    every = StructType()
    for name, column in incoming.COLUMNS.items():
        every.add(name, column.type)
    [row] = rows([message.encode()], every)
    assert row == {
        "body": b"\x00\xffbody",
        "to": "orders",
        "subject": "s",
        "message_id": "m-1",
        "correlation_id": "7",
        "reply_to": "back",
        "group_id": "g",
        "content_type": "text/plain",
        "user_id": b"me",
        "group_sequence": 3,
        "absolute_expiry_time": datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC),
        "durable": True,
        "priority": 9,
        "ttl_ms": 12500,
        "application_properties": {"text": "ä", "number": "5", "yes": "true", "none": None},
        "annotations": {"x-opt-why": "because"},
        "delivery_count": 2,
        "content_encoding": "gzip",
        "creation_time": datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC),
        "reply_to_group_id": "rg",
    }


def test_what_a_bare_body_leaves_out_is_null_or_its_default() -> None:
    wanted = incoming.default_schema()
    [row] = rows([b"\x00\x53\x75\xa0\x02hi"], wanted)
    given = {name: value for name, value in row.items() if value is not None}
    assert given == {"body": b"hi", "durable": False, "priority": 4}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("text ä", "text ä"),
        (b"bytes", "bytes"),
        (12, "12"),
        (1.5, "1.5"),
        (True, "true"),
        (
            {"a": [1, None, b"\x01"], "t": timestamp(0)},
            '{"a": [1, null, "AQ=="], "t": "1970-01-01T00:00:00.000+00:00"}',
        ),
        ([1, "two", ID], f'[1, "two", "{ID}"]'),
        (char("ß"), "ß"),
        (ID, str(ID)),
        (Described(symbol("of"), "what"), "what"),
        (None, None),
    ],
)
def test_an_amqp_value_is_text_or_json(body: Any, expected: str | None) -> None:
    message = Message(body=body)
    message.inferred = False
    assert rows([message.encode()], schema(body=TEXT)) == [{"body": expected}]


def test_sections_of_data_and_of_sequences_follow_each_other() -> None:
    data = b"\x00\x53\x75\xa0\x01a" + b"\x00\x53\x75\xb0\x00\x00\x00\x02bc"
    numbers = b"\x00\x53\x76\xc0\x03\x01\x54\x01" + b"\x00\x53\x76\x45" + b"\x00\x53\x76\xc0\x03\x01\x54\x02"
    assert rows([data, numbers], schema(body=TEXT)) == [{"body": "abc"}, {"body": "[1, 2]"}]


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (TEXT, ["5", "2.5", "true", "x", "00ff", None]),
        (LongType(), [5, None, None, None, None, None]),
        (DoubleType(), [5.0, 2.5, None, None, None, None]),
        (BooleanType(), [None, None, True, None, None, None]),
        (BinaryType(), [None, None, None, b"x", b"\x00\xff", None]),
        (ByteType(), [5, None, None, None, None, None]),
    ],
)
def test_a_map_is_read_as_the_type_it_is_asked_for(type_: DataType, expected: list[object]) -> None:
    message = Message(properties={"a": 5, "b": 2.5, "c": True, "d": "x", "e": b"\x00\xff", "f": None})
    [row] = rows([message.encode()], schema(application_properties=MapType(TEXT, type_)))
    assert list(row["application_properties"].values()) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5),
        (-129, -129),
        (70_000, 70_000),
        (1 << 40, 1 << 40),
        (ulong((1 << 64) - 1), (1 << 64) - 1),
        (2.5, 2.5),
        (True, True),
        (False, False),
        (None, None),
        ("short", "short"),
        ("long " * 20, "long " * 20),
        (b"bytes", b"bytes"),
        (ubyte(200), 200),
    ],
)
def test_a_variant_keeps_the_type(value: object, expected: object) -> None:
    [row] = rows(
        [Message(properties={"k": value}).encode()],
        schema(application_properties=MapType(TEXT, VariantType())),
    )
    found = row["application_properties"]["k"]
    assert VariantVal(found["value"], found["metadata"]).toPython() == expected


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (b"\xa1\x01x", "x"),
        (b"\x80" + bytes(7) + b"\x05", "5"),
        (b"\x98" + ID.bytes, str(ID)),
        (b"\xa0\x02\x00\xff", "00ff"),
    ],
)
def test_a_message_id_of_any_type_is_text(encoded: bytes, expected: str) -> None:
    message = b"\x00\x53\x73\xc0" + bytes((len(encoded) + 1, 1)) + encoded
    assert rows([message], schema(message_id=TEXT)) == [{"message_id": expected}]


def test_a_descriptor_may_be_spelt_out() -> None:
    named = b"\x00\xa3\x10amqp:data:binary\xa0\x01n"
    long = b"\x00\x80" + bytes(7) + b"\x75\xa0\x01l"
    assert rows([named, long], schema(body=TEXT)) == [{"body": "n"}, {"body": "l"}]


def test_text_that_is_no_utf8_spoils_no_other_row() -> None:
    messages = [b"\x00\x53\x75\xa0\x02ok", b"\x00\x53\x75\xa0\x02\xff!"]
    assert rows(messages, schema(body=TEXT)) == [{"body": "ok"}, {"body": "�!"}]


MALFORMED = [
    b"",
    b"no message",
    b"\x00\x53\x75\xa0\x09short",
    b"\x00\x53\x20\x45",
    b"\x00\x53\x73\xc0\x03\x01\xa1\x09",
    b"\x00\x53\x73\xa1\x01x",
    b"\x00\x53\x74\xc1\x01\x08",
    b"\x00\xa3\x02hi\x45",
    b"\x00\x53",
]


@pytest.mark.parametrize("bad", MALFORMED)
def test_a_malformed_message_is_told_or_a_row_of_nulls_and_touches_no_other(bad: bytes) -> None:
    good = b"\x00\x53\x75\xa0\x04good"
    wanted = schema(body=BinaryType(), message_id=TEXT, application_properties=MapType(TEXT, TEXT))
    nothing = {"body": None, "message_id": None, "application_properties": None}
    with pytest.raises(MalformedError, match="message 1 of 3"):
        rows([good, bad, good], wanted)
    assert rows([good, bad, good], wanted, lenient=True) == [
        nothing | {"body": b"good"},
        nothing,
        nothing | {"body": b"good"},
    ]


def test_bytes_at_random_never_raise_anything_else() -> None:
    """Truncated and overwritten messages, as a hostile sender makes them."""
    chance = random.Random(5)
    message = Message(
        body={"a": [1, {"b": 2}]}, id="x", properties={"k": 1}, annotations={symbol("n"): int32(4)}
    )
    encoded = message.encode()
    wanted = incoming.default_schema()
    for _ in range(3000):
        bad = bytearray(encoded[: chance.randrange(1, len(encoded) + 1)])
        for _ in range(chance.randrange(4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        Decoder(wanted, lenient=True).batch(bytes(bad), [len(bad)]).validate(full=True)


def test_nesting_is_bounded() -> None:
    deep = b"\x45"
    for _ in range(200):
        deep = b"\xd0" + (len(deep) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + deep
    with pytest.raises(MalformedError, match="deep"):
        read(deep, 0)
    assert skip(deep, 0) == len(deep)
    with pytest.raises(MalformedError):
        skip(b"\x00" * 100_000, 0)


WIDE = (2_000_000).to_bytes(4, "big")
LIES = {
    "an array of nulls that costs no byte": b"\xf0\x00\x00\x00\x05" + WIDE + b"\x40",
    "one that says it had room": b"\xf0" + WIDE + WIDE + b"\x40",
    "one of empty lists": b"\xf0\x00\x00\x00\x05" + WIDE + b"\x45",
    "one of described nulls": b"\xf0\x00\x00\x00\x08" + WIDE + b"\x00\x53\x01\x40",
    "one of numbers": b"\xf0\x00\x00\x00\x06" + WIDE + b"\x54\x01",
    "a short one": b"\xe0\x02\xff\x40",
    "a list": b"\xd0\x00\x00\x00\x04" + WIDE,
    "a short list": b"\xc0\x01\xff",
    "a map": b"\xd1\x00\x00\x00\x04" + WIDE,
    "a short map": b"\xc1\x01\xfe",
}


@pytest.mark.parametrize("lie", LIES)
def test_more_items_than_a_compound_has_bytes_are_malformed_before_any_is_made(lie: str) -> None:
    """Whatever else is in the buffer: it holds the messages of a whole partition."""
    with pytest.raises(MalformedError, match=r"too many items|ends at byte"):
        read(LIES[lie] + b"\x40" * 2_000_000, 0)


def test_a_message_of_nothing_times_two_million_costs_nothing() -> None:
    items = LIES["an array of nulls that costs no byte"] * 6
    bomb = b"\x00\x53\x77\xd0" + (len(items) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x06" + items
    assert len(bomb) == 72
    good = b"\x00\x53\x75\xb0" + WIDE + b"x" * 2_000_000
    with pytest.raises(MalformedError, match="message 0 of 2"):
        rows([bomb, good], schema(body=TEXT))
    assert [
        row["body"] and len(row["body"]) for row in rows([bomb, good], schema(body=TEXT), lenient=True)
    ] == [
        None,
        2_000_000,
    ]


def test_a_compound_ends_where_its_size_says() -> None:
    for bad in (b"\xc0\x04\x01\x54\x01\x40", b"\xe0\x05\x02\x54\x01\x02\x40", b"\xc0\x03\x01\xa1\x02ab"):
        with pytest.raises(MalformedError, match="ends at byte"):
            read(bad, 0)
    assert read(b"\xe0\x02\x01\x41", 0) == ([True], 4)
    assert read(b"\xe0\x02\x00\x40", 0) == ([], 4)
    assert read(b"\xe0\x06\x02\xa1\x01a\x01b", 0) == (["a", "b"], 8)


def test_arrays_and_maps_with_any_keys() -> None:
    assert read(b"\xe0\x04\x02\x54\x01\x02", 0) == ([1, 2], 6)
    assert read(b"\xc1\x05\x02\x54\x01\x54\x02", 0) == (Pairs([(1, 2)]), 7)
    with pytest.raises(MalformedError):
        read(b"\xc1\x03\x01\x54\x01", 0)


def test_columns_that_are_not_there_are_all_named_at_once() -> None:
    wanted = schema(
        subjet=TEXT, priority=TEXT, body=IntegerType(), application_properties=MapType(TEXT, TEXT)
    )
    said = r"did you mean 'subject'.*'priority' can't be string.*'body' can't be int"
    with pytest.raises(ValueError, match=said):
        incoming.check(wanted)


def test_the_batch_has_exactly_the_schema_spark_expects() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = incoming.default_schema()
    batch = Decoder(wanted).batch(b"", [])
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.equals(to_arrow_schema(wanted, timezone="UTC"))
