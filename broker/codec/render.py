"""An encoded message as JSON can say it, for whoever looks into a queue: small parts whole, bodies in part.

Pure and bounded: what is no AMQP is shown as hexadecimal digits, never an error. Nothing on the message path
comes here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from broker.codec.message import value_end

# Bytes of a body that are shown, and those of other sections and of one whole value in a body.
BODY_BYTES, SECTION_BYTES = 4096, 65_536
DEEPEST = 16
# Elements of an array that take no bytes of their own: many small arrays of many would be far more than there
# is.
MOST_WITHOUT_BYTES = 16

DATA, SEQUENCE, VALUE = 0x75, 0x76, 0x77
SECTIONS = {
    0x70: "header",
    0x71: "delivery_annotations",
    0x72: "message_annotations",
    0x73: "properties",
    0x74: "application_properties",
    0x78: "footer",
}
# §3.2.1 and §3.2.4: the fields of the two sections that are lists.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "header": ("durable", "priority", "ttl", "first_acquirer", "delivery_count"),
    "properties": (
        *("message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type"),
        *("content_encoding", "absolute_expiry_time", "creation_time"),
        *("group_id", "group_sequence", "reply_to_group_id"),
    ),
}


def described(message: bytes) -> dict[str, object]:
    """The sections by name; of the body its kind, as much as is shown of it, and whether that is less."""
    found: dict[str, object] = {}
    at = 0
    try:
        while at < len(message):
            if message[at : at + 2] != b"\x00\x53":
                raise ValueError("no section")
            code, at = message[at + 2], at + 3
            if code in (DATA, SEQUENCE, VALUE):
                end = skipped(message, at)
                if "body" not in found:
                    found |= _body(code, message, at, min(end, len(message)))
                at = end
                continue
            name = SECTIONS[code]
            end = skipped(message, at)
            if end - at > SECTION_BYTES:
                found[name] = f"({end - at} bytes)"
            else:
                found[name] = _named(name, value(message, at)[0])
            at = end
    except (ValueError, IndexError, KeyError, struct.error, OverflowError, RecursionError):
        found.setdefault("encoded", message[:BODY_BYTES].hex())
    return found


def _named(name: str, content: object) -> object:
    if name not in FIELDS or not isinstance(content, list):
        return content
    known = zip(FIELDS[name], content, strict=False)
    return {field: each for field, each in known if each is not None}


def _body(code: int, message: bytes, at: int, end: int) -> dict[str, object]:
    kind = {DATA: "data", SEQUENCE: "sequence", VALUE: "value"}[code]
    constructor = message[at]
    if constructor in (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3):
        begin = at + (2 if constructor < 0xB0 else 5)
        shown = message[begin : min(begin + BODY_BYTES, end)]
        text = shown.decode("utf-8", "backslashreplace")
        return {"body_kind": kind, "body": text, "body_cut": end - begin > BODY_BYTES}
    if end - at > SECTION_BYTES:
        return {"body_kind": kind, "body": message[at : at + BODY_BYTES].hex(), "body_cut": True}
    return {"body_kind": kind, "body": value(message, at)[0], "body_cut": False}


def skipped(data: bytes, at: int) -> int:
    """Return where the value at ``at`` ends, which may be behind the end of what is there, or ValueError."""
    end = value_end(data, at, len(data), 0)
    if end < 0:
        raise ValueError(f"no value at byte {at}")
    return end


def value(data: bytes, at: int, depth: int = 0) -> tuple[Any, int]:
    """A value as JSON has it, and where it ends."""
    if depth > DEEPEST:
        raise ValueError("too deep")
    code, end = data[at], skipped(data, at)
    if end > len(data):
        raise ValueError("cut off")
    if code == 0:
        inner = skipped(data, at + 1)
        return value(data, inner, depth + 1)[0], end
    if code in (0xC0, 0xD0, 0xC1, 0xD1, 0x45):
        return _compound(data, at, depth), end
    if code in (0xE0, 0xF0):
        return _array(data, at, depth), end
    return _scalar(code, data[at + 1 : end]), end


def _scalar(code: int, raw: bytes) -> object:
    reader = _READERS.get(code)
    if reader is not None:
        return reader(raw)
    if code in (0xA0, 0xA1, 0xA3):
        return raw[1:].decode("utf-8", "backslashreplace")
    if code in (0xB0, 0xB1, 0xB3):
        return raw[4:].decode("utf-8", "backslashreplace")
    return raw.hex()


def _head(data: bytes, at: int) -> tuple[int, int]:
    """How many items a list, map or array has, and where they begin."""
    if data[at] == 0x45:
        return 0, at + 1
    if data[at] & 0xF0 in (0xC0, 0xE0):
        return data[at + 2], at + 3
    return int.from_bytes(data[at + 5 : at + 9], "big"), at + 9


def _compound(data: bytes, at: int, depth: int) -> object:
    count, here = _head(data, at)
    end = skipped(data, at)
    items = []
    for _ in range(count):
        if here >= end:
            # What stands behind it isn't its own, however many it says it has.
            raise ValueError("more items than bytes")
        item, here = value(data, here, depth + 1)
        items.append(item)
    if data[at] not in (0xC1, 0xD1):
        return items
    return {str(key): item for key, item in zip(items[::2], items[1::2], strict=True)}


def _array(data: bytes, at: int, depth: int) -> list[object]:
    count, here = _head(data, at)
    end = skipped(data, at)
    if data[here] == 0:
        here = skipped(data, here + 1)
    constructor, here = data[here : here + 1], here + 1
    if skipped(constructor + bytes(16), 0) == 1 and count > MOST_WITHOUT_BYTES:
        raise ValueError("an array without end")
    items: list[object] = []
    for _ in range(count):
        # Each item is a value whose constructor stands once, before all of them.
        size = skipped(constructor + data[here : here + 5].ljust(5, b"\0"), 0) - 1
        if here + size > end:
            raise ValueError("more items than bytes")
        items.append(value(constructor + data[here : here + size], 0, depth + 1)[0])
        here += size
    return items


def _when(raw: bytes) -> object:
    at_ms = int.from_bytes(raw, "big", signed=True)
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return at_ms


def _real(form: str) -> Callable[[bytes], object]:
    def read(raw: bytes) -> object:
        found: float = struct.unpack(form, raw)[0]
        # JSON has no word for the others.
        return found if found - found == 0 else str(found)

    return read


def _character(code: int) -> str:
    """The character; empty for half of a surrogate pair, which is none, and for what is beyond Unicode."""
    return "" if 0xD800 <= code < 0xE000 or code > 0x10FFFF else chr(code)


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _unsigned(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


_READERS: Mapping[int, Callable[[bytes], object]] = {
    0x40: lambda raw: None,
    0x41: lambda raw: True,
    0x42: lambda raw: False,
    0x43: lambda raw: 0,
    0x44: lambda raw: 0,
    **dict.fromkeys((0x50, 0x52, 0x53, 0x60, 0x70, 0x80), _unsigned),
    **dict.fromkeys((0x51, 0x54, 0x55, 0x61, 0x71, 0x81), _signed),
    0x56: lambda raw: raw != b"\0",
    0x72: _real(">f"),
    0x82: _real(">d"),
    0x73: lambda raw: _character(_unsigned(raw)) or raw.hex(),
    0x83: _when,
    0x98: lambda raw: str(UUID(bytes=raw)),
}
