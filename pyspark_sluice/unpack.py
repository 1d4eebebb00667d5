"""Every AMQP 1.0 value (§1.6) as Python's, from an offset of a buffer.

What can't be read raises MalformedError. Maps are lists of pairs, since their keys need not be hashable;
symbols are text, a timestamp stays ``Timestamp``, a described value is what it describes.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

# Deeper than anything written by hand, far from Python's own limit.
DEEPEST = 64

Reader = Callable[[bytes, int, int], tuple[Any, int]]


class MalformedError(ValueError):
    """The bytes are no AMQP message."""


class Timestamp(int):
    """Milliseconds since the epoch."""

    __slots__ = ()


class Pairs(list[tuple[Any, Any]]):
    """A map in the order it was written."""

    __slots__ = ()


def read(buffer: bytes, at: int, depth: int = 0) -> tuple[Any, int]:
    """The value at ``at`` and the offset behind it."""
    try:
        return READERS[buffer[at]](buffer, at + 1, depth)
    except MalformedError:
        raise
    except (KeyError, IndexError, struct.error, ValueError, OverflowError) as error:
        raise MalformedError(f"no AMQP value at byte {at}: {error!r}") from error


def skip(buffer: bytes, at: int) -> int:
    """The offset behind the value at ``at``, which is not looked into (§1.2 says how wide it is)."""
    try:
        code = buffer[at]
        if code == 0:
            return skip(buffer, skip(buffer, at + 1))
        width = WIDTHS[code >> 4]
        if width >= 0:
            return at + 1 + width
        if width == -1:
            return at + 2 + buffer[at + 1]
        return at + 5 + _size(buffer, at + 1)
    except (IndexError, KeyError, struct.error, RecursionError) as error:
        raise MalformedError(f"no AMQP value at byte {at}: {error!r}") from error


# The high half of a constructor's code: so many bytes follow; -1 and -4 are sizes of that width.
WIDTHS = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16, 0xA: -1, 0xB: -4, 0xC: -1, 0xD: -4, 0xE: -1, 0xF: -4}

_UINT = struct.Struct(">I")


def _size(buffer: bytes, at: int) -> int:
    return int(_UINT.unpack_from(buffer, at)[0])


def _constant(value: Any) -> Reader:
    return lambda buffer, at, depth: (value, at)


def _fixed(form: str) -> Reader:
    packed = struct.Struct(">" + form)
    width = packed.size

    def fixed(buffer: bytes, at: int, depth: int) -> tuple[Any, int]:
        return packed.unpack_from(buffer, at)[0], at + width

    return fixed


def _timestamp(buffer: bytes, at: int, depth: int) -> tuple[Timestamp, int]:
    return Timestamp.from_bytes(_bytes(buffer, at, 8), "big", signed=True), at + 8


def _uuid(buffer: bytes, at: int, depth: int) -> tuple[uuid.UUID, int]:
    return uuid.UUID(bytes=_bytes(buffer, at, 16)), at + 16


def _char(buffer: bytes, at: int, depth: int) -> tuple[str, int]:
    return _bytes(buffer, at, 4).decode("utf-32-be"), at + 4


def _boolean(buffer: bytes, at: int, depth: int) -> tuple[bool, int]:
    return buffer[at] != 0, at + 1


def _raw(width: int) -> Reader:
    """A decimal: Python has no binary form of them, so its bytes."""
    return lambda buffer, at, depth: (_bytes(buffer, at, width), at + width)


def _bytes(buffer: bytes, at: int, size: int) -> bytes:
    found = buffer[at : at + size]
    if len(found) != size:
        raise MalformedError(f"{size} bytes are announced at byte {at}, {len(found)} are there")
    return found


def _binary8(buffer: bytes, at: int, depth: int) -> tuple[bytes, int]:
    size = buffer[at]
    return _bytes(buffer, at + 1, size), at + 1 + size


def _binary32(buffer: bytes, at: int, depth: int) -> tuple[bytes, int]:
    size = _size(buffer, at)
    return _bytes(buffer, at + 4, size), at + 4 + size


def _text8(buffer: bytes, at: int, depth: int) -> tuple[str, int]:
    found, after = _binary8(buffer, at, depth)
    return found.decode(), after


def _text32(buffer: bytes, at: int, depth: int) -> tuple[str, int]:
    found, after = _binary32(buffer, at, depth)
    return found.decode(), after


def _check(buffer: bytes, at: int, end: int, count: int, depth: int) -> None:
    """Before any work: what is announced has to have room in the compound's own bytes. An item takes one at
    least; an array of nothing but constants (0x40 to 0x45) needs none, and is held to the same."""
    if depth >= DEEPEST or not count <= end - at <= len(buffer) - at:
        raise MalformedError(f"too deep or too many items at byte {at}")


def _items(buffer: bytes, at: int, end: int, count: int, depth: int) -> tuple[list[Any], int]:
    _check(buffer, at, end, count, depth)
    found = []
    for _ in range(count):
        value, at = read(buffer, at, depth + 1)
        found.append(value)
    return found, _ended(at, end)


def _ended(at: int, end: int) -> int:
    if at != end:
        raise MalformedError(f"a list, map or array ends at byte {end}, its items at {at}")
    return end


def _list8(buffer: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    return _items(buffer, at + 2, at + 1 + buffer[at], buffer[at + 1], depth)


def _list32(buffer: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    return _items(buffer, at + 8, at + 4 + _size(buffer, at), _size(buffer, at + 4), depth)


def _map8(buffer: bytes, at: int, depth: int) -> tuple[Pairs, int]:
    found, after = _list8(buffer, at, depth)
    return Pairs(zip(found[::2], found[1::2], strict=True)), after


def _map32(buffer: bytes, at: int, depth: int) -> tuple[Pairs, int]:
    found, after = _list32(buffer, at, depth)
    return Pairs(zip(found[::2], found[1::2], strict=True)), after


def _array(buffer: bytes, at: int, end: int, count: int, depth: int) -> tuple[list[Any], int]:
    """Its items share one constructor (§1.6.24)."""
    _check(buffer, at, end, count, depth)
    while buffer[at] == 0:
        at = skip(buffer, at + 1)
    code, at = buffer[at], at + 1
    reader, width = READERS[code], WIDTHS[code >> 4]
    if width >= 0:
        # What a count costs is known: in an array of nothing the bytes don't end it.
        _ended(at + count * width, end)
    found = []
    for _ in range(count):
        value, at = reader(buffer, at, depth + 1)
        found.append(value)
    return found, _ended(at, end)


def _array8(buffer: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    return _array(buffer, at + 2, at + 1 + buffer[at], buffer[at + 1], depth)


def _array32(buffer: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    return _array(buffer, at + 8, at + 4 + _size(buffer, at), _size(buffer, at + 4), depth)


def _described(buffer: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth >= DEEPEST:
        raise MalformedError(f"too deep at byte {at}")
    return read(buffer, skip(buffer, at), depth + 1)


READERS: dict[int, Reader] = {
    0x00: _described,
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x43: _constant(0),
    0x44: _constant(0),
    0x45: lambda buffer, at, depth: ([], at),
    0x50: _fixed("B"),
    0x51: _fixed("b"),
    0x52: _fixed("B"),
    0x53: _fixed("B"),
    0x54: _fixed("b"),
    0x55: _fixed("b"),
    0x56: _boolean,
    0x60: _fixed("H"),
    0x61: _fixed("h"),
    0x70: _fixed("I"),
    0x71: _fixed("i"),
    0x72: _fixed("f"),
    0x73: _char,
    0x74: _raw(4),
    0x80: _fixed("Q"),
    0x81: _fixed("q"),
    0x82: _fixed("d"),
    0x83: _timestamp,
    0x84: _raw(8),
    0x94: _raw(16),
    0x98: _uuid,
    0xA0: _binary8,
    0xA1: _text8,
    0xA3: _text8,
    0xB0: _binary32,
    0xB1: _text32,
    0xB3: _text32,
    0xC0: _list8,
    0xC1: _map8,
    0xD0: _list32,
    0xD1: _map32,
    0xE0: _array8,
    0xF0: _array32,
}
