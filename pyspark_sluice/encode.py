"""Rows to messages: which column goes to which section, and the id that makes a resend recognisable.

The id is ``{query}-{batch}-{partition}-{hash of the row}-{occurrence}``. It never comes from a row's place:
Spark may hand a task that it tries again the same rows in another order. Only what varies from row to row is
hashed. Works on a slice of an Arrow batch at a time, column by column.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from . import encoding, values
from .errors import EncodeError
from .occurrences import Occurrences
from .options import Options

SLICE = 1024
_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA, _VALUE = map(
    encoding.section, (0x70, 0x72, 0x73, 0x74, 0x75, 0x77)
)
_JSON = values.symbol("application/json")

_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_ID: dict[Any, values.Encode] = {
    t.StringType: encoding.text,
    t.BinaryType: encoding.binary,
    **dict.fromkeys(_INTEGERS, values.ulong),
}
_TEXT: dict[Any, values.Encode] = {t.StringType: encoding.text}
_UINT: dict[Any, values.Encode] = dict.fromkeys(_INTEGERS, values.uint)
# Places of the properties (§3.2.4); the first is the message-id.
_FIELDS: dict[str, tuple[int, dict[Any, values.Encode]]] = {
    "user_id": (
        1,
        {t.BinaryType: encoding.binary, t.StringType: lambda value: encoding.binary(value.encode())},
    ),
    "to": (2, _TEXT),
    "subject": (3, _TEXT),
    "reply_to": (4, _TEXT),
    "correlation_id": (5, _ID),
    "content_type": (6, {t.StringType: values.symbol}),
    "absolute_expiry_time": (
        8,
        {
            t.TimestampType: values.timestamp,
            t.TimestampNTZType: values.timestamp,
            t.LongType: values.milliseconds,
        },
    ),
    "group_id": (10, _TEXT),
    "group_sequence": (11, _UINT),
}
_CONTENT_TYPE = 6
# Fields of the header (§3.2.1).
_HEAD: dict[str, tuple[int, dict[Any, values.Encode]]] = {
    "durable": (0, {t.BooleanType: encoding.boolean}),
    "priority": (1, dict.fromkeys(_INTEGERS, values.ubyte)),
    "ttl_ms": (2, _UINT),
}
_MAPS = {
    "application_properties": (_APPLICATION, encoding.text),
    "annotations": (_ANNOTATIONS, values.symbol),
}
COLUMNS = ("body", "message_id", *_FIELDS, *_HEAD, *_MAPS)
# What may be a value of application_properties (§3.2.5: no list, no map).
_PLAIN = (t.StringType, *_INTEGERS, t.FloatType, t.DoubleType, t.BooleanType, *values.VARIANTS, t.BinaryType)

Column = list[bytes]
Make = Callable[[pa.RecordBatch], Column]


class Encoder:
    """Encodes one task's rows. EncodeError, when it is made, names every column that has no place."""

    def __init__(self, schema: t.StructType, options: Options, prefix: str) -> None:
        kinds = {field.name: field.dataType for field in schema}
        wrong = _misfits(kinds, options)
        if wrong:
            raise EncodeError("; ".join(wrong))
        self._prefix = f"{prefix}-".encode()
        self._occurrences = Occurrences()
        self._ids = _taker("message_id", _ID[type(kinds["message_id"])]) if "message_id" in kinds else None
        self._head, self._head_is_constant = _head(kinds, options)
        self._tail, self._tail_is_constant = _tail(kinds, options)
        self._rest = _rest(kinds, options)

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """The batch's messages, a slice at a time as they are asked for."""
        for at in range(0, batch.num_rows, SLICE):
            yield from self._slice(batch.slice(at, SLICE))

    def _slice(self, batch: pa.RecordBatch) -> Iterable[bytes]:
        heads, tails, rests = self._head(batch), self._tail(batch), self._rest(batch)
        varying: Iterable[bytes] = rests
        if not (self._head_is_constant and self._tail_is_constant):
            varying = map(b"".join, zip(heads, tails, rests, strict=True))
        ids = self._names(varying)
        if self._ids is not None:
            given = self._ids(batch)
            ids = [own if mine == encoding.NULL else mine for mine, own in zip(given, ids, strict=True)]
        return map(_message, heads, ids, tails, rests)

    def _names(self, rows: Iterable[bytes]) -> Column:
        digests = [blake2b(row, digest_size=16).digest() for row in rows]
        counted = self._occurrences.count(digests)
        prefix = self._prefix
        if counted is None:
            size = len(prefix) + 34
            if size < 256:
                first = b"\xa1%c%b" % (size, prefix)
                return [b"%b%b-0" % (first, hexlify(digest)) for digest in digests]
            counted = [0] * len(digests)
        return [
            encoding.text(f"{prefix.decode()}{digest.hex()}-{count}")
            for digest, count in zip(digests, counted, strict=True)
        ]


def _message(head: bytes, name: bytes, tail: bytes, rest: bytes) -> bytes:
    """``tail`` begins with the number of properties."""
    size = len(name) + len(tail)
    if size < 256:
        return b"%b\x00\x53\x73\xc0%c%c%b%b%b" % (head, size, tail[0], name, tail[1:], rest)
    return b"".join(
        (head, _PROPERTIES, b"\xd0", (size + 3).to_bytes(4, "big"), b"\0\0\0", tail[:1], name, tail[1:], rest)
    )


# --- what a schema may have


def _misfits(kinds: dict[str, t.DataType], options: Options) -> list[str]:
    wrong = [
        f"unknown column {name}; there may be {', '.join(COLUMNS)}" for name in kinds if name not in COLUMNS
    ]
    if "body" not in kinds:
        wrong.append("column body is missing")
    if options.address is None and "to" not in kinds:
        wrong.append("without the option address there has to be a column to")
    taken = {name: accepted for name, (_, accepted) in (*_FIELDS.items(), *_HEAD.items())} | {
        "message_id": _ID
    }
    for name, accepted in taken.items():
        if name in kinds and type(kinds[name]) not in accepted:
            expected = " or ".join(sorted({kind.typeName() for kind in accepted}))
            wrong.append(f"column {name} is {kinds[name].simpleString()}, expected {expected}")
    for name in _MAPS:
        kind = kinds.get(name)
        if kind is not None and not (isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType)):
            wrong.append(f"column {name} is {kind.simpleString()}, expected a map with strings as keys")
    given = kinds.get("application_properties")
    if isinstance(given, t.MapType) and not isinstance(given.valueType, _PLAIN):
        wrong.append(
            f"column application_properties has values of {given.valueType.simpleString()}, expected strings,"
            " numbers, booleans or variants"
        )
    return wrong


# --- columns to sections


def _taker(name: str, encode: values.Encode) -> Make:
    """What encodes a column; EncodeError names it."""

    def take(batch: pa.RecordBatch) -> Column:
        try:
            return [
                encoding.NULL if value is None else encode(value) for value in batch.column(name).to_pylist()
            ]
        except (EncodeError, ValueError, OverflowError) as fault:
            raise EncodeError(f"column {name}: {fault}") from None

    return take


def _head(kinds: dict[str, t.DataType], options: Options) -> tuple[Make, bool]:
    """Header and message-annotations."""
    durable = encoding.boolean(options.durable)
    fields: list[Make | bytes] = [durable, encoding.NULL, encoding.NULL]
    for name, (place, accepted) in _HEAD.items():
        if name in kinds:
            fields[place] = _taker(name, accepted[type(kinds[name])])
    annotations = _map_section("annotations", kinds)
    if annotations is None and all(isinstance(each, bytes) for each in fields):
        constant = _HEADER + b"\xc0\x02\x01\x41" if options.durable else b""
        return _constant(constant), True

    def make(batch: pa.RecordBatch) -> Column:
        filled = [[each] * batch.num_rows if isinstance(each, bytes) else each(batch) for each in fields]
        # A null durable means the option's.
        filled[0] = [durable if each == encoding.NULL else each for each in filled[0]]
        found = [_HEADER + b"\xc0%c\x03%b" % (len(row) + 1, row) for row in _rows(filled)]
        if annotations is not None:
            found = [first + second for first, second in zip(found, annotations(batch), strict=True)]
        return found

    return make, False


def _tail(kinds: dict[str, t.DataType], options: Options) -> tuple[Make, bool]:
    """The properties behind the message-id, their number first."""
    fields: dict[int, Make | bytes] = {
        place: _taker(name, accepted[type(kinds[name])])
        for name, (place, accepted) in _FIELDS.items()
        if name in kinds
    }
    if options.body_type == "json":
        fields.setdefault(_CONTENT_TYPE, _JSON)
    last = max(fields, default=0)
    listed = [fields.get(place, encoding.NULL) for place in range(1, last + 1)]
    count = bytes((last + 1,))
    if all(isinstance(each, bytes) for each in listed):
        return _constant(count + b"".join(each for each in listed if isinstance(each, bytes))), True

    def make(batch: pa.RecordBatch) -> Column:
        filled = [[each] * batch.num_rows if isinstance(each, bytes) else each(batch) for each in listed]
        return [count + row for row in _rows(filled)]

    return make, False


def _rest(kinds: dict[str, t.DataType], options: Options) -> Make:
    """Application-properties and body."""
    properties = _map_section("application_properties", kinds)
    kind = kinds["body"]
    if options.body_type == "json":
        body = _sections(_DATA, values.json_text(kind), encoding.binary)
    elif isinstance(kind, t.BinaryType):
        body = _data
    else:
        body = _sections(_VALUE, None, values.encoder(kind, "body"))
    if properties is None:
        return body

    def make(batch: pa.RecordBatch) -> Column:
        return [first + second for first, second in zip(properties(batch), body(batch), strict=True)]

    return make


def _data(batch: pa.RecordBatch) -> Column:
    """Bytes as data sections."""
    return [
        b"\x00\x53\x75\xa0%c%b" % (len(value), value)
        if value is not None and len(value) < 256
        else _DATA + encoding.binary(value or b"")
        for value in batch.column("body").to_pylist()
    ]


def _sections(section: bytes, render: Callable[[Any], bytes] | None, encode: values.Encode) -> Make:
    def make(batch: pa.RecordBatch) -> Column:
        try:
            found = batch.column("body").to_pylist()
            if render is not None:
                return [section + encode(b"null" if value is None else render(value)) for value in found]
            return [section + encode(value) for value in found]
        except (EncodeError, ValueError, OverflowError, TypeError) as fault:
            raise EncodeError(f"column body: {fault}") from None

    return make


def _map_section(name: str, kinds: dict[str, t.DataType]) -> Make | None:
    kind = kinds.get(name)
    if not isinstance(kind, t.MapType):
        return None
    section, key = _MAPS[name]
    item = values.encoder(kind.valueType, name)
    take = _taker(name, lambda value: values.pairs((key(each), item(other)) for each, other in value))
    return lambda batch: [b"" if each == encoding.NULL else section + each for each in take(batch)]


def _constant(value: bytes) -> Make:
    return lambda batch: [value] * batch.num_rows


def _rows(columns: list[Column]) -> Iterator[bytes]:
    return map(b"".join, zip(*columns, strict=True)) if columns else repeat(b"")
