"""AMQP values as the types that columns have. None where a value can't be had as what was asked for."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    VariantType,
)

from .unpack import Pairs, Timestamp

Convert = Callable[[Any], Any]

BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
# A variant's dictionary of keys, of which scalars need none.
NO_KEYS = b"\x01\x00\x00"


def converter(wanted: DataType) -> Convert:
    """What makes a value of a map one of that type."""
    if isinstance(wanted, BinaryType):
        return binary
    if isinstance(wanted, BooleanType):
        return flag
    if isinstance(wanted, FloatType | DoubleType):
        return real
    if isinstance(wanted, VariantType):
        return variant
    bits = BITS.get(type(wanted))
    return text if bits is None else whole(bits)


def text(value: Any) -> bytes | None:
    """UTF-8 of what a reader would write: binary as hexadecimal digits, composite values as JSON."""
    if value is None:
        return None
    if type(value) is int:
        # As JSON has it, for a fifth of the time: a stream's messages have two (bench/sparksource.py).
        return b"%d" % value
    if type(value) is float and math.isfinite(value):
        # The same, for a fifth of the time too.
        return repr(value).encode()
    if isinstance(value, bytes):
        return value.hex().encode()
    return _plain(value).encode("utf-8", "surrogatepass")


def payload(value: Any) -> bytes | None:
    """A body: text and bytes as they are, the rest as ``text``."""
    return value if isinstance(value, bytes) else text(value)


def _plain(value: Any) -> str:
    if isinstance(value, str | UUID):
        return str(value)
    if isinstance(value, Timestamp):
        return _moment(value)
    return json.dumps(_jsonable(value), ensure_ascii=False)


def _jsonable(value: Any) -> Any:
    """As Spark's own ``to_json`` has it, bytes in base 64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Pairs):
        return {key if isinstance(key, str) else _plain(key): _jsonable(item) for key, item in value}
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _plain(value) if isinstance(value, UUID | Timestamp) else value


def _moment(value: Timestamp) -> str:
    try:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(int(value))


def binary(value: Any) -> bytes | None:
    """Bytes, and text as UTF-8."""
    return value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else None


def flag(value: Any) -> bool | None:
    """A boolean."""
    return value if isinstance(value, bool) else None


def real(value: Any) -> float | None:
    """Any number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def whole(bits: int) -> Convert:
    """An integer of so many bits."""
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def integer(value: Any) -> int | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return int(value) if fits else None

    return integer


def micros(value: Any) -> int | None:
    """Microseconds since the epoch; None beyond what Spark can hold."""
    if not isinstance(value, int):
        return None
    found = int(value) * 1000
    return found if -(1 << 63) <= found < 1 << 63 else None


def variant(value: Any) -> bytes | None:
    """A scalar in Spark's binary encoding of variants; composite values as their JSON text."""
    if value is None:
        return None
    if isinstance(value, bool):
        return b"\x04" if value else b"\x08"
    if isinstance(value, Timestamp):
        moment = micros(value)
        return None if moment is None else b"\x30" + struct.pack("<q", moment)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return b"\x1c" + struct.pack("<d", value)
    if isinstance(value, bytes):
        return b"\x3c" + struct.pack("<I", len(value)) + value
    encoded = text(value) or b""
    if len(encoded) < 64:
        return bytes((len(encoded) << 2 | 1,)) + encoded
    return b"\x40" + struct.pack("<I", len(encoded)) + encoded


def _integer(value: int) -> bytes:
    for header, form, bits in ((0x0C, "<b", 8), (0x10, "<h", 16), (0x14, "<i", 32), (0x18, "<q", 64)):
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return bytes((header,)) + struct.pack(form, value)
    # An unsigned long beyond Spark's: as a decimal of 20 digits, without a fraction.
    return b"\x28\x00" + value.to_bytes(16, "little", signed=True)
