"""Messages one after the other, each read whole: the columns' values as lists.

Says of any bytes whether they are a message, and what of it is in which column.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from . import convert
from .incoming import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    BODY,
    COLUMNS,
    HEADER,
    PLACE,
    PROPERTIES,
)
from .unpack import MalformedError, read, skip

DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
NAMES = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}

# One column while it is filled: a value for each row, and what makes one of what was read.
Pick = tuple[list[Any], convert.Convert]


class Filling:
    """Columns on their way to be arrays."""

    def __init__(self, schema: StructType, rows: int) -> None:
        self.columns: dict[str, list[Any]] = {}
        self.header: list[Pick | None] = [None] * 5
        self.properties: list[Pick | None] = [None] * 13
        self.maps: dict[int, Pick] = {}
        self.body: list[bytes | None] | None = None
        for field in schema.fields:
            if field.name in PLACE:
                continue
            column = COLUMNS[field.name]
            filled: list[Any] = [column.default] * rows
            self.columns[field.name] = filled
            if column.section == BODY:
                self.body = filled
            elif isinstance(field.dataType, MapType):
                self.maps[column.section] = (filled, convert.converter(field.dataType.valueType))
            else:
                fields = self.header if column.section == HEADER else self.properties
                fields[column.index] = (filled, converter_of(field.dataType))
        self.lists = {HEADER: _trimmed(self.header), PROPERTIES: _trimmed(self.properties)}

    def message(self, buffer: bytes, at: int, end: int, row: int) -> None:
        """Fill ``row`` from the message between two offsets."""
        lists, maps = self.lists, self.maps
        if at == end:
            raise MalformedError("no bytes")
        while at < end:
            if buffer[at] == 0 and buffer[at + 1] == 0x53:
                code = buffer[at + 2]
                at += 3
            else:
                code, at = descriptor(buffer, at)
            if lists.get(code):
                at = _fields(buffer, at, lists[code], row)
            elif code in maps:
                into, made = maps[code]
                pairs, at = read_map(buffer, at, made)
                if pairs is not None:
                    into[row] = pairs
            elif DATA <= code <= VALUE and self.body is not None:
                at = _body(buffer, at, code, self.body, row)
            elif HEADER <= code <= FOOTER:
                at = skip(buffer, at)
            else:
                raise MalformedError(f"section 0x{code:02x} is none of a message's")
        if at > end:
            raise MalformedError(f"{at - end} bytes are missing")

    def clear(self, row: int) -> None:
        """Of a message that can't be read nothing is kept."""
        for column in self.columns.values():
            column[row] = None


def _trimmed(picks: list[Pick | None]) -> list[Pick | None]:
    """Up to the last one wanted: the fields behind it need not be looked at."""
    while picks and picks[-1] is None:
        picks.pop()
    return picks


def converter_of(wanted: DataType) -> convert.Convert:
    """What makes a field of a list one of that type."""
    if isinstance(wanted, TimestampType):
        return convert.micros
    if isinstance(wanted, BooleanType):
        return convert.flag
    if isinstance(wanted, BinaryType):
        return convert.binary
    if isinstance(wanted, StringType):
        return convert.text
    return convert.converter(wanted)


def descriptor(buffer: bytes, at: int) -> tuple[int, int]:
    """A section's code and the offset behind its descriptor, where that isn't the usual three bytes."""
    if buffer[at] != 0:
        raise MalformedError(f"no section at byte {at}")
    found, at = read(buffer, at + 1)
    code = NAMES.get(found) if isinstance(found, str) else found
    if not isinstance(code, int):
        raise MalformedError(f"no section is called {found!r}")
    return code, at


def _fields(buffer: bytes, at: int, picks: list[Pick | None], row: int) -> int:
    """The fields of a list (§1.6.22) that are wanted; the offset behind the list."""
    code = buffer[at]
    if code == 0xC0:
        after, count, at = at + 2 + buffer[at + 1], buffer[at + 2], at + 3
    elif code == 0xD0:
        count = int.from_bytes(buffer[at + 5 : at + 9], "big")
        after, at = at + 5 + int.from_bytes(buffer[at + 1 : at + 5], "big"), at + 9
    elif code == 0x45:
        return at + 1
    else:
        raise MalformedError(f"a list is expected at byte {at}, not 0x{code:02x}")
    for pick in picks[:count]:
        code = buffer[at]
        if code == 0x40:
            at += 1
        elif pick is None:
            at = skip(buffer, at)
        elif code in (0xA1, 0xA3) and pick[1] is convert.text:
            # Text stays as it is encoded; Arrow checks that of a whole column at once.
            start = at + 2
            at = start + buffer[at + 1]
            pick[0][row] = buffer[start:at]
        else:
            value, at = read(buffer, at)
            pick[0][row] = pick[1](value)
    if at > after:
        raise MalformedError(f"a list ends at byte {after}, its fields at {at}")
    return after


def read_map(buffer: bytes, at: int, made: convert.Convert) -> tuple[dict[bytes, Any] | None, int]:
    """A map with text as keys, or an AMQP null; of a key that comes twice the last value."""
    code = buffer[at]
    if code == 0xC1:
        after, count, at = at + 2 + buffer[at + 1], buffer[at + 2], at + 3
    elif code == 0xD1:
        count = int.from_bytes(buffer[at + 5 : at + 9], "big")
        after, at = at + 5 + int.from_bytes(buffer[at + 1 : at + 5], "big"), at + 9
    else:
        found, after = read(buffer, at)
        if found is not None:
            raise MalformedError(f"a map is expected at byte {at}, not 0x{code:02x}")
        return None, after
    if count > after - at:
        raise MalformedError(f"a map at byte {at} announces {count} items")
    texts = made is convert.text
    pairs: dict[bytes, Any] = {}
    for _ in range(count // 2):
        if buffer[at] in (0xA1, 0xA3):
            start = at + 2
            at = start + buffer[at + 1]
            key = buffer[start:at]
        else:
            value, at = read(buffer, at)
            key = convert.text(value) or b""
        if texts and buffer[at] == 0xA1:
            start = at + 2
            at = start + buffer[at + 1]
            pairs[key] = buffer[start:at]
        else:
            value, at = read(buffer, at)
            pairs[key] = made(value)
    if at != after:
        raise MalformedError(f"a map ends at byte {after}, its items at {at}")
    return pairs, after


def _body(buffer: bytes, at: int, code: int, into: list[Any], row: int) -> int:
    """One section of the body; several of data, or of sequences, follow each other (§3.2)."""
    width = buffer[at]
    if width in (0xA0, 0xA1):
        start = at + 2
        after = start + buffer[at + 1]
    elif width in (0xB0, 0xB1):
        start = at + 5
        after = start + int.from_bytes(buffer[at + 1 : start], "big")
    else:
        value, after = read(buffer, at)
        part = convert.payload(value)
        if code == SEQUENCE and into[row] is not None and part is not None:
            part = into[row][:-1] + (b", " if len(into[row]) > 2 and value else b"") + part[1:]
        into[row] = part
        return after
    part = buffer[start:after]
    into[row] = part if into[row] is None else into[row] + part
    return after
