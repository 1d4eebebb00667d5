"""A message's sections by another decoder, Proton's, and the rules of AMQP 1.0 §3.2 written down once
more."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from proton import Data

_LETTERS = dict(zip(range(0x70, 0x79), "hdmpabsvf", strict=True))
_SYMBOLS = {
    "amqp:header:list": "h",
    "amqp:delivery-annotations:map": "d",
    "amqp:message-annotations:map": "m",
    "amqp:properties:list": "p",
    "amqp:application-properties:map": "a",
    "amqp:data:binary": "b",
    "amqp:amqp-sequence:list": "s",
    "amqp:amqp-value:*": "v",
    "amqp:footer:map": "f",
}
_ORDER = re.compile("h?d?m?p?a?(b+|s+|v)?f?")
_TYPES = {"h": Data.LIST, "p": Data.LIST, "s": Data.LIST, "b": Data.BINARY}
# Described values within a described value that a broker may refuse.
DEEP = 30


@dataclass
class Decoded:
    """``letters``: one for each section; the fields of the header and of the properties, as (type, value)."""

    letters: str = ""
    header: list[tuple[int, object]] = field(default_factory=list)
    properties: list[tuple[int, object]] = field(default_factory=list)
    deep: bool = False


def _behind(encoded: bytes, at: int) -> int:
    """Where the value at ``at`` ends; -1 if a list or map in it doesn't fill the size it says (§1.6).

    Proton doesn't ask for that, and may read on beyond an array's end.
    """
    constructor, at = encoded[at] if at < len(encoded) else 0x01, at + 1
    if constructor == 0:
        descriptor = _behind(encoded, at)
        return _behind(encoded, descriptor) if 0 <= descriptor < len(encoded) else -1
    if constructor >> 4 in range(4, 10):
        return at + (0 if constructor < 0x50 else 1 << ((constructor >> 4) - 5))
    width = 4 if constructor & 0x10 else 1
    size = int.from_bytes(encoded[at : at + width], "big")
    end = at + width + size
    if end > len(encoded) or constructor < 0x40:
        return -1
    if constructor >> 4 in (0xA, 0xB) or (constructor >> 4 in (0xE, 0xF)):
        # An array's elements have no constructors of their own: Proton reads those.
        return end
    count = int.from_bytes(encoded[at + width : at + 2 * width], "big")
    at += 2 * width
    for _ in range(count):
        if not 0 <= at < end:
            return -1
        at = _behind(encoded[:end], at)
    return end if at == end else -1


def decoded(encoded: bytes) -> Decoded | None:
    """What Proton reads; None where it can't, or where the sections are not those of a message."""
    found = Decoded()
    at = 0
    while at < len(encoded):
        data = Data()
        try:
            used, behind = data.decode(encoded[at:]), _behind(encoded, at)
        except Exception:  # noqa: BLE001 - whatever it is, Proton doesn't take it
            return None
        # A header that is longer than any is refused, whatever is in it.
        if encoded[at : at + 3] in (b"\x00\x53\x70", b"\x00\x80\x00") and used > 4000:
            return None
        # Nobody writes a section's descriptor as a sym32, and we don't read one.
        if used <= 1 or at + used != behind or encoded[at + 1] == 0xB3:
            return None
        if not _section(data, found):
            return None
        at += used
    return found if found.letters and _ORDER.fullmatch(found.letters) else None


def _section(data: Data, found: Decoded) -> bool:
    data.rewind()
    if data.next() is None or not data.is_described():
        return False
    data.enter()
    data.next()
    letter = _letter(data)
    data.next()
    if not letter or (letter != "v" and data.type() != _TYPES.get(letter, Data.MAP)):
        return False
    found.letters += letter
    if letter in "hp":
        (found.header if letter == "h" else found.properties)[:] = _fields(data)
    depth = 0
    while data.is_described():
        data.enter()
        data.next()
        data.next()
        depth += 1
    found.deep = found.deep or depth > DEEP
    return True


def _letter(data: Data) -> str:
    if data.type() == Data.ULONG:
        return _LETTERS.get(data.get_ulong(), "")
    if data.type() == Data.SYMBOL:
        try:
            return _SYMBOLS.get(str(data.get_symbol()), "")
        except UnicodeDecodeError:
            return ""
    return ""


def _fields(data: Data) -> list[tuple[int, object]]:
    fields: list[tuple[int, object]] = []
    data.enter()
    while data.next() is not None:
        kind = int(data.type() or 0)
        value: object = None
        if kind == Data.BOOL:
            value = data.get_bool()
        elif kind == Data.UINT:
            value = int(data.get_uint())
        elif kind == Data.TIMESTAMP:
            value = int(data.get_timestamp())
        fields.append((kind, value))
    data.exit()
    return fields
