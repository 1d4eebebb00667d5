"""Spark's types as AMQP's (AMQP 1.0 §1.6): for each type a function that encodes one of its values."""

from __future__ import annotations

import base64
import datetime
import json
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from operator import itemgetter
from typing import Any

from pyspark.sql import types as t

from . import encoding
from .encoding import LIST32, MAP32, NULL, binary, boolean, compound, double, text
from .errors import EncodeError

Encode = Callable[[Any], bytes]
# The types whose values say themselves what they are; PySpark 3.5 has none.
VARIANTS: tuple[type[t.DataType], ...] = (t.VariantType,) if hasattr(t, "VariantType") else ()
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def symbol(value: str) -> bytes:
    """A symbol (§1.6.21)."""
    try:
        return encoding.symbol(value.encode("ascii"))
    except UnicodeEncodeError:
        raise EncodeError("has characters that are not ASCII, which no symbol may have") from None


def uint(value: int) -> bytes:
    """A uint (§1.6.4); EncodeError beyond 32 bits."""
    if not 0 <= value < 1 << 32:
        raise EncodeError("is not within 0 and 4,294,967,295")
    return b"\x70" + value.to_bytes(4, "big")


def ubyte(value: int) -> bytes:
    """A ubyte (§1.6.2)."""
    if not 0 <= value < 256:
        raise EncodeError("is not within 0 and 255")
    return b"\x50%c" % value


def ulong(value: int) -> bytes:
    """A ulong (§1.6.5), the one kind of number that ids may be."""
    if value < 0:
        raise EncodeError("is negative, which no id may be")
    return b"\x80" + value.to_bytes(8, "big")


def long(value: int) -> bytes:
    """A long (§1.6.10), in two bytes where that is enough."""
    if -128 <= value < 128:
        return b"\x55" + value.to_bytes(1, "big", signed=True)
    return b"\x81" + value.to_bytes(8, "big", signed=True)


def timestamp(value: datetime.datetime) -> bytes:
    """A timestamp (§1.6.17), in milliseconds; one without a zone is taken for UTC."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    return b"\x83" + ((value - _EPOCH) // datetime.timedelta(milliseconds=1)).to_bytes(8, "big", signed=True)


def milliseconds(value: int) -> bytes:
    """A timestamp given in milliseconds."""
    return b"\x83" + value.to_bytes(8, "big", signed=True)


def pairs(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A map, sorted by key: a row is the same message whatever order Spark has its entries in."""
    found = sorted(items)
    return compound(MAP32, (part for pair in found for part in pair), 2 * len(found))


def anything(value: Any) -> bytes:
    """What a VARIANT held, by the type it turned out to have."""
    found: list[tuple[type, Encode]] = [
        *(
            (bool, boolean),
            (int, _integer),
            (float, double),
            (str, text),
            (bytes, binary),
            (bytearray, binary),
        ),
        *((Decimal, _decimal), (datetime.datetime, timestamp), (datetime.date, _day)),
    ]
    if value is None:
        return NULL
    for kind, encode in found:
        if isinstance(value, kind):
            return encode(value)
    if isinstance(value, dict):
        return pairs((text(str(key)), anything(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return compound(LIST32, map(anything, value), len(value))
    raise EncodeError(f"holds a {type(value).__name__}, which has no counterpart in AMQP")


def _integer(value: int) -> bytes:
    return long(value) if -(1 << 63) <= value < 1 << 63 else text(str(value))


def _decimal(value: Decimal) -> bytes:
    return text(_digits(value))


def _digits(value: Decimal) -> str:
    """Never with an exponent: Python has one from six zeros on, which SQL reads as a double."""
    return format(value, "f")


def _day(value: datetime.date) -> bytes:
    return text(value.isoformat())


def _sized(code: int, size: int) -> Encode:
    prefix = bytes((code,))
    return lambda value: prefix + value.to_bytes(size, "big", signed=True)


_SIMPLE: dict[type[t.DataType], Encode] = {
    t.BooleanType: boolean,
    t.ByteType: _sized(0x51, 1),
    t.ShortType: _sized(0x61, 2),
    t.IntegerType: _sized(0x71, 4),
    t.LongType: long,
    t.FloatType: lambda value: b"\x72" + struct.pack(">f", value),
    t.DoubleType: double,
    t.StringType: text,
    t.VarcharType: text,
    t.CharType: text,
    t.BinaryType: binary,
    t.DecimalType: _decimal,
    t.DateType: _day,
    t.TimestampType: timestamp,
    t.TimestampNTZType: timestamp,
}


def encoder(kind: t.DataType, column: str) -> Encode:
    """What encodes values of a type as Arrow gives them, nulls too. EncodeError for a type AMQP has nothing
    for, naming the column."""
    plain = _SIMPLE.get(type(kind))
    if plain is None:
        plain = _nested(kind, column)
    found = plain
    return lambda value: NULL if value is None else found(value)


def _nested(kind: t.DataType, column: str) -> Encode:
    if isinstance(kind, t.ArrayType):
        item = encoder(kind.elementType, column)
        return lambda value: compound(LIST32, map(item, value), len(value))
    if isinstance(kind, t.MapType):
        key, item = encoder(kind.keyType, column), encoder(kind.valueType, column)
        # Arrow has a map as a list of pairs.
        return lambda value: pairs((key(each), item(other)) for each, other in value)
    if isinstance(kind, t.StructType):
        fields = [(text(field.name), field.name, encoder(field.dataType, column)) for field in kind]
        return lambda value: pairs((name, encode(value[key])) for name, key, encode in fields)
    if isinstance(kind, VARIANTS):
        return lambda value: anything(_variant(value))
    raise EncodeError(f"column {column}: {kind.simpleString()} has no counterpart in AMQP")


def _variant(value: Any) -> Any:
    return t.VariantVal(bytes(value["value"]), bytes(value["metadata"])).toPython()


def json_text(kind: t.DataType) -> Callable[[Any], bytes]:
    """What renders values of a type as JSON; texts and bytes are taken for JSON already."""
    if isinstance(kind, t.StringType):
        return lambda value: str(value).encode()
    if isinstance(kind, t.BinaryType):
        return bytes
    ready = _jsonable(kind)
    return lambda value: _render(ready(value)).encode()


_render = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _key(value: Any) -> str:
    """What JSON knows, as the name of a member: the text that it is as a value."""
    return value if isinstance(value, str) else _render(value)


def _jsonable(kind: t.DataType) -> Callable[[Any], Any]:
    """What makes of Arrow's value one that JSON knows: as Spark's own ``to_json``, bytes are in base 64."""
    found: Callable[[Any], Any]
    if isinstance(kind, t.ArrayType):
        each = _jsonable(kind.elementType)
        found = lambda value: [each(item) for item in value]  # noqa: E731
    elif isinstance(kind, t.MapType):
        name_of, other = _jsonable(kind.keyType), _jsonable(kind.valueType)
        found = lambda value: dict(  # noqa: E731
            sorted(((_key(name_of(key)), other(item)) for key, item in value), key=itemgetter(0))
        )
    elif isinstance(kind, t.StructType):
        fields = {field.name: _jsonable(field.dataType) for field in kind}
        found = lambda value: {name: ready(value[name]) for name, ready in fields.items()}  # noqa: E731
    elif isinstance(kind, VARIANTS):
        return lambda value: None if value is None else json.loads(_variant_json(value))
    elif isinstance(kind, t.BinaryType):
        found = lambda value: base64.b64encode(value).decode()  # noqa: E731
    elif isinstance(kind, t.DateType | t.TimestampType | t.TimestampNTZType):
        found = lambda value: value.isoformat()  # noqa: E731
    elif isinstance(kind, t.DecimalType):
        found = _digits
    else:
        return lambda value: value
    return lambda value: None if value is None else found(value)


def _variant_json(value: Any) -> str:
    return str(t.VariantVal(bytes(value["value"]), bytes(value["metadata"])).toJson())
