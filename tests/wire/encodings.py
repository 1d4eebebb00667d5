"""Every encoding of every AMQP type at its edges, by hand (AMQP 1.0 §1.6), and values made of them.

Each is a constructor and its data; what a codec would write otherwise (a number in more bytes than it
needs) is here as well, since a broker has no business to know better.
"""

from __future__ import annotations

import random
import struct

# Name, constructor, data.
SIMPLE: list[tuple[str, int, bytes]] = [
    ("null", 0x40, b""),
    ("true", 0x41, b""),
    ("false", 0x42, b""),
    ("boolean-true", 0x56, b"\x01"),
    ("boolean-false", 0x56, b"\x00"),
    ("uint0", 0x43, b""),
    ("ulong0", 0x44, b""),
    *((f"ubyte-{n}", 0x50, bytes((n,))) for n in (0, 255)),
    *((f"byte-{n}", 0x51, struct.pack(">b", n)) for n in (-128, -1, 127)),
    *((f"smalluint-{n}", 0x52, bytes((n,))) for n in (0, 255)),
    *((f"smallulong-{n}", 0x53, bytes((n,))) for n in (0, 255)),
    *((f"smallint-{n}", 0x54, struct.pack(">b", n)) for n in (-128, 0, 127)),
    *((f"smalllong-{n}", 0x55, struct.pack(">b", n)) for n in (-128, 0, 127)),
    *((f"ushort-{n}", 0x60, struct.pack(">H", n)) for n in (0, 65535)),
    *((f"short-{n}", 0x61, struct.pack(">h", n)) for n in (-32768, -1, 32767)),
    *((f"uint-{n}", 0x70, struct.pack(">I", n)) for n in (0, 2**32 - 1)),
    *((f"int-{n}", 0x71, struct.pack(">i", n)) for n in (-(2**31), 0, 2**31 - 1)),
    *((f"float-{n}", 0x72, struct.pack(">f", n)) for n in (1 / 3, float("inf"), -0.0)),
    ("float-nan-with-a-payload", 0x72, b"\x7f\xa0\x12\x34"),
    ("char", 0x73, "😀".encode("utf-32-be")),
    ("char-surrogate", 0x73, b"\x00\x00\xd8\x00"),
    ("decimal32", 0x74, b"\x22\x50\x00\x01"),
    *((f"ulong-{n}", 0x80, struct.pack(">Q", n)) for n in (0, 2**64 - 1)),
    *((f"long-{n}", 0x81, struct.pack(">q", n)) for n in (-(2**63), 0, 2**63 - 1)),
    *((f"double-{n}", 0x82, struct.pack(">d", n)) for n in (1 / 3, float("-inf"), -0.0)),
    *((f"timestamp-{n}", 0x83, struct.pack(">q", n)) for n in (-(2**63), -1, 2**63 - 1)),
    ("decimal64", 0x84, b"\x22\x38" + bytes(5) + b"\x01"),
    ("decimal128", 0x94, b"\x22\x08" + bytes(13) + b"\x01"),
    ("uuid", 0x98, bytes(range(16))),
    ("binary8", 0xA0, b"\xff" + bytes(range(255))),
    ("binary8-empty", 0xA0, b"\x00"),
    ("binary32-of-three", 0xB0, b"\x00\x00\x00\x03abc"),
    ("binary32", 0xB0, b"\x00\x00\x03\x00" + bytes(range(256)) * 3),
    ("string8", 0xA1, b"\x05gr\xc3\xbcn"),
    ("string8-empty", 0xA1, b"\x00"),
    ("string32-of-three", 0xB1, b"\x00\x00\x00\x03abc"),
    ("string32", 0xB1, b"\x00\x00\x01\x2c" + b"x" * 300),
    ("symbol8", 0xA3, b"\x0aa-symbol:x"),
    ("symbol32-of-three", 0xB3, b"\x00\x00\x00\x03abc"),
    ("symbol32", 0xB3, b"\x00\x00\x01\x2c" + b"s" * 300),
    ("list0", 0x45, b""),
]


def _compound(constructor: int, count: int, data: bytes) -> bytes:
    """Size and count, in one byte each or in four."""
    width = 1 if constructor < 0xD0 or constructor == 0xE0 else 4
    return (
        bytes((constructor,))
        + (len(data) + width).to_bytes(width, "big")
        + count.to_bytes(width, "big")
        + data
    )


def list_of(*values: bytes, small: bool = False) -> bytes:
    """A list, in four-byte form unless ``small``."""
    return _compound(0xC0 if small else 0xD0, len(values), b"".join(values))


def map_of(*values: bytes, small: bool = False) -> bytes:
    """A map of keys and values in turn."""
    return _compound(0xC1 if small else 0xD1, len(values), b"".join(values))


def array_of(constructor: bytes, *data: bytes, small: bool = False) -> bytes:
    """An array; its constructor may be a described one."""
    return _compound(0xE0 if small else 0xF0, len(data), constructor + b"".join(data))


def described(descriptor: bytes, value: bytes) -> bytes:
    """A described value."""
    return b"\x00" + descriptor + value


def simple() -> dict[str, bytes]:
    """Every value that is no list, map or array."""
    return {name: bytes((constructor,)) + data for name, constructor, data in SIMPLE}


SYMBOL = b"\xa3\x03x:y"
ULONG = b"\x80" + (0x1234_5678_9ABC).to_bytes(8, "big")
# The descriptors of sections, where they are none (§3.2).
HEADER, FOOTER = b"\x53\x70", b"\x53\x78"
INT, STRING = b"\x54\x05", b"\xa1\x02hi"


def compound() -> dict[str, bytes]:
    """Lists, maps, arrays and described values, those that nobody knows included."""
    return {
        "list8": list_of(INT, STRING, small=True),
        "list32": list_of(INT, STRING, list_of(), list_of(small=True)),
        "list-of-300": list_of(*[INT] * 300),
        "map8": map_of(SYMBOL, INT, STRING, b"\x40", small=True),
        "map32": map_of(SYMBOL, INT, INT, map_of(), list_of(INT), STRING),
        "map-empty": map_of(small=True),
        "array8": array_of(b"\x71", *(n.to_bytes(4, "big") for n in range(5)), small=True),
        "array32": array_of(b"\xa3", b"\x01a", b"\x02bb"),
        "array-empty": array_of(b"\x71"),
        "array-of-nothing": array_of(b"\x40", b"", b"", b""),
        "array-of-lists": array_of(b"\xc0", list_of(INT, small=True)[1:], list_of(small=True)[1:]),
        "array-of-arrays": array_of(b"\xe0", array_of(b"\x50", b"\x01", small=True)[1:]),
        "array-described": array_of(b"\x00" + SYMBOL + b"\x54", b"\x01", b"\x02"),
        "described-by-symbol": described(SYMBOL, STRING),
        "described-by-ulong": described(ULONG, list_of(INT)),
        "described-by-string": described(STRING, INT),
        "described-by-list": described(list_of(INT, STRING), INT),
        "described-twice": described(SYMBOL, described(ULONG, INT)),
        "described-descriptor": described(described(SYMBOL, INT), INT),
        "described-as-a-header": described(HEADER, list_of(b"\x41")),
        "described-as-a-footer-within": list_of(described(FOOTER, map_of(SYMBOL, INT)), INT),
        "bytes-of-a-message": b"\xa0\x07\x00\x53\x77\xa1\x02hi",
    }


def random_value(dice: random.Random, depth: int = 4) -> bytes:
    """A value of any type in any encoding, with others inside."""
    kind = dice.randrange(8) if depth else 0
    inner = [random_value(dice, depth - 1) for _ in range(dice.randrange(5))] if kind > 3 else []
    small = len(b"".join(inner)) < 200 and dice.random() < 0.5
    match kind:
        case 4 | 5:
            return list_of(*inner, small=small)
        case 6:
            return map_of(*inner[: len(inner) // 2 * 2], small=small)
        case 7:
            return described(dice.choice((SYMBOL, ULONG, HEADER)), random_value(dice, depth - 1))
    _, constructor, data = dice.choice(SIMPLE)
    return bytes((constructor,)) + data
