"""Columns become the sections they name, read back with Proton's own decoder; ids come from content."""

from __future__ import annotations

import base64
import datetime
import json
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, symbol
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_sluice import encoding, values
from pyspark_sluice.encode import Encoder
from pyspark_sluice.errors import EncodeError
from pyspark_sluice.occurrences import Occurrences
from pyspark_sluice.options import Options, parse
from tests.spark.reading import body_of
from tests.spark.schemas import schema_of

JSON = {"bodyType": "json"}
HERE = {"url": "amqp://broker.example.org", "address": "orders"}


def encoded(schema: str, *rows: tuple[Any, ...], prefix: str = "q-0-0", **more: str) -> list[bytes]:
    kinds = schema_of(schema)
    options = parse(HERE | more, "sink")
    return list(Encoder(kinds, options, prefix).encode(batch(kinds, rows)))


def batch(kinds: t.StructType, rows: tuple[tuple[Any, ...], ...]) -> pa.RecordBatch:
    arrow = to_arrow_schema(kinds, timezone="UTC")
    columns = [
        pa.array(list(column), arrow.field(at).type) for at, column in enumerate(zip(*rows, strict=True))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def decoded(schema: str, *rows: tuple[Any, ...], **more: str) -> list[Message]:
    found = []
    for each in encoded(schema, *rows, **more):
        message = Message()
        message.decode(each)
        found.append(message)
    return found


def test_bytes_are_data_of_any_length() -> None:
    for size in (0, 1, 255, 256, 70000):
        message = decoded("body BINARY", (b"x" * size,))[0]
        assert body_of(message) == b"x" * size
        assert message.inferred
        assert message.durable


def test_texts_and_compounds_are_values() -> None:
    assert decoded("body STRING", ("hé",))[0].body == "hé"
    assert decoded("body ARRAY<INT>", ([1, None, 3],))[0].body == [1, None, 3]
    assert decoded("body MAP<STRING, BIGINT>", ({"b": 1, "a": 1 << 40},))[0].body == {"a": 1 << 40, "b": 1}
    found = decoded("body STRUCT<a: DOUBLE, b: STRUCT<c: STRING>>", ({"a": 1.5, "b": {"c": "d"}},))[0].body
    assert found == {"a": 1.5, "b": {"c": "d"}}
    assert decoded("body STRING", (None,))[0].body is None


def test_json_is_data_with_its_content_type() -> None:
    schema = "body STRUCT<a: INT, at: TIMESTAMP, tags: MAP<STRING, ARRAY<INT>>>"
    at = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    message = decoded(schema, ({"a": 1, "at": at, "tags": {"x": [1]}},), bodyType="json")[0]
    assert body_of(message) == b'{"a":1,"at":"2013-01-01T05:00:00+00:00","tags":{"x":[1]}}'
    assert message.content_type == "application/json"
    assert body_of(decoded("body STRING", ('{"is":"text"}',), bodyType="json")[0]) == b'{"is":"text"}'


def test_bytes_in_json_are_in_base_64_as_spark_has_them() -> None:
    for value in (b"\xff\x00abc", b"\\xff\x00abc", b""):
        (message,) = decoded(
            "body STRUCT<b: BINARY, c: ARRAY<BINARY>>", ({"b": value, "c": [value]},), **JSON
        )
        found = json.loads(body_of(message))
        assert base64.b64decode(found["b"], validate=True) == value
        assert found["c"] == [found["b"]]


@pytest.mark.parametrize(
    ("kind", "key", "expected"),
    [
        ("STRING", "a", "a"),
        ("BINARY", b"\xff\x00", "/wA="),
        ("TIMESTAMP", datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), "2020-01-01T00:00:00+00:00"),
        ("DATE", datetime.date(2020, 1, 1), "2020-01-01"),
        ("BOOLEAN", True, "true"),
        ("INT", 5, "5"),
        ("DOUBLE", 1.5, "1.5"),
        ("ARRAY<BINARY>", [b"a"], '["YQ=="]'),
        ("STRUCT<a: INT>", {"a": 1}, '{"a":1}'),
    ],
)
def test_a_key_in_json_is_the_text_that_it_is_as_a_value(kind: str, key: object, expected: str) -> None:
    schema = f"body STRUCT<m: MAP<{kind}, {kind}>>"
    (message,) = decoded(schema, ({"m": [(key, key)]},), **JSON)
    ((name, value),) = json.loads(body_of(message))["m"].items()
    assert name == expected
    assert value == (expected if isinstance(value, str) else json.loads(expected))


def test_a_decimal_is_written_out() -> None:
    kind = t.DecimalType(38, 18)
    for value, expected in (
        ("0E-18", "0.000000000000000000"),
        ("1.00000000000E-7", "0.000000100000000000"),
        ("-12345678901234567890.5", "-12345678901234567890.5"),
    ):
        assert values.encoder(kind, "body")(Decimal(value)) == encoding.text(expected)
        assert values.anything(Decimal(value)) == encoding.text(expected)
        assert json.loads(values.json_text(kind)(Decimal(value))) == expected
        pairs = [(Decimal(value), None)]
        assert json.loads(values.json_text(t.MapType(kind, kind))(pairs)) == {expected: None}


def test_every_property_has_its_place() -> None:
    schema = (
        "body BINARY, `to` STRING, subject STRING, message_id STRING, correlation_id BIGINT, reply_to STRING,"
        " group_id STRING, content_type STRING, user_id STRING, group_sequence INT,"
        " absolute_expiry_time TIMESTAMP, durable BOOLEAN, priority INT, ttl_ms BIGINT"
    )
    expiry = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    row = (b"b", "a", "s", "id", 7, "r", "g", "text/plain", "u", 3, expiry, False, 9, 5000)
    found = decoded(schema, row)[0]
    assert (found.address, found.subject, found.id, found.correlation_id) == ("a", "s", "id", 7)
    assert (found.reply_to, found.group_id, found.content_type) == ("r", "g", "text/plain")
    assert (bytes(found.user_id), found.group_sequence) == (b"u", 3)
    assert found.expiry_time == expiry.timestamp()
    assert (found.durable, found.priority, found.ttl) == (False, 9, 5.0)


def test_nulls_leave_what_would_stand_there_without_the_column() -> None:
    schema = "body BINARY, subject STRING, message_id STRING, durable BOOLEAN, priority INT"
    found = decoded(schema, (b"b", None, None, None, None))[0]
    assert found.subject is None
    assert str(found.id).startswith("q-0-0-")
    assert (found.durable, found.priority) == (True, 4)


def test_application_properties_and_annotations() -> None:
    schema = "body BINARY, application_properties MAP<STRING, DOUBLE>, annotations MAP<STRING, STRING>"
    found = decoded(schema, (b"b", {"x": 1.5}, {"x-opt-y": "z"}), (b"b", None, None))
    assert found[0].properties == {"x": 1.5}
    assert found[0].annotations == {symbol("x-opt-y"): "z"}
    assert not found[1].properties
    assert not found[1].annotations


MISFITS = [
    ("body BINARY, colour STRING", "unknown column colour"),
    ("subject STRING", "column body is missing"),
    ("body BINARY, priority STRING", "column priority is string, expected"),
    ("body BINARY, `to` INT", "column to is int, expected string"),
    ("body BINARY, application_properties STRING", "expected a map with strings as keys"),
    ("body BINARY, application_properties MAP<STRING, ARRAY<INT>>", "application_properties has values of"),
    ("body INTERVAL DAY", "has no counterpart in AMQP"),
]


@pytest.mark.parametrize(("schema", "says"), MISFITS, ids=range(len(MISFITS)))
def test_a_schema_that_makes_no_message_is_refused(schema: str, says: str) -> None:
    with pytest.raises(EncodeError) as refused:
        Encoder(schema_of(schema), parse(HERE, "sink"), "")
    assert says in str(refused.value)


def test_without_an_address_every_row_says_where_to() -> None:
    options = parse({"url": "amqp://broker.example.org"}, "sink")
    with pytest.raises(EncodeError, match="there has to be a column to"):
        Encoder(schema_of("body BINARY"), options, "")


def test_a_value_that_does_not_fit_names_its_column() -> None:
    with pytest.raises(EncodeError, match="column priority: is not within 0 and 255"):
        encoded("body BINARY, priority INT", (b"b", 256))


# --- ids


def ids(
    rows: list[tuple[Any, ...]], schema: str = "body BINARY, subject STRING", prefix: str = "q-0-0"
) -> list[str]:
    kinds = schema_of(schema)
    encoder = Encoder(kinds, OPTIONS, prefix)
    found = []
    for at in range(0, len(rows), 700):
        for each in encoder.encode(batch(kinds, tuple(rows[at : at + 700]))):
            message = Message()
            message.decode(each)
            found.append(str(message.id))
    return found


OPTIONS: Options = parse(HERE, "sink")


def test_ids_are_those_of_the_rows_in_whatever_order() -> None:
    rows = [(b"row-%d" % (number % 900), "even" if number % 2 else "odd") for number in range(3000)]
    first = Counter(zip(ids(rows), rows, strict=True))
    shuffled = rows[:]
    random.Random(7).shuffle(shuffled)
    again = Counter(zip(ids(shuffled), shuffled, strict=True))
    assert first == again
    assert len(first) == 3000


def test_an_id_tells_query_batch_partition_hash_and_occurrence() -> None:
    first, second, other = ids([(b"a", "s"), (b"a", "s"), (b"a", "t")], prefix="query-4-2")
    assert first.startswith("query-4-2-")
    assert (first[:-1], first[-1], second[-1]) == (second[:-1], "0", "1")
    assert other[:-1] != first[:-1]
    assert len(first.split("-")[3]) == 32


def test_ids_do_not_depend_on_what_a_map_lists_first() -> None:
    schema = "body BINARY, application_properties MAP<STRING, INT>"
    one = ids([(b"b", [("x", 1), ("y", 2)])], schema)
    assert one == ids([(b"b", [("y", 2), ("x", 1)])], schema)


# How long one example takes is the machine's affair.
@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=20), max_size=12))
def test_occurrences_are_counted_over_batches(batches: list[list[int]]) -> None:
    """Against a plain dictionary."""
    occurrences, seen = Occurrences(), Counter[int]()
    for each in batches:
        expected = []
        for number in each:
            expected.append(seen[number])
            seen[number] += 1
        found = occurrences.count([number.to_bytes(8, "little") + b"rest" for number in each])
        assert (found or [0] * len(each)) == expected
