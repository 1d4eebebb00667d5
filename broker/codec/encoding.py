"""The encodings of values (AMQP 1.0 §1.6) that the broker, its client and the connector write.

No import of this package: ``pyspark_sluice`` has a link to this very file, where a few of these functions are
called for every row, so each is written out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

NULL = b"\x40"
LIST32, MAP32 = 0xD0, 0xD1


def section(code: int) -> bytes:
    """Return the descriptor that opens a section of a message (§3.2)."""
    return bytes((0x00, 0x53, code))


def text(value: str) -> bytes:
    """Encode a string (§1.6.20)."""
    payload = value.encode()
    if len(payload) < 256:
        return b"\xa1%c%b" % (len(payload), payload)
    return b"\xb1" + len(payload).to_bytes(4, "big") + payload


def symbol(value: bytes) -> bytes:
    """Encode a symbol (§1.6.21), given as its ASCII."""
    if len(value) < 256:
        return b"\xa3%c%b" % (len(value), value)
    return b"\xb3" + len(value).to_bytes(4, "big") + value


def binary(value: bytes) -> bytes:
    """Encode a binary (§1.6.19)."""
    if len(value) < 256:
        return b"\xa0%c%b" % (len(value), value)
    return b"\xb0" + len(value).to_bytes(4, "big") + value


def boolean(value: bool) -> bytes:
    """Encode a boolean (§1.6.1)."""
    return b"\x41" if value else b"\x42"


def long(value: int) -> bytes:
    """Encode a long (§1.6.10) in eight bytes; OverflowError beyond them."""
    return b"\x81" + value.to_bytes(8, "big", signed=True)


def double(value: float) -> bytes:
    """Encode a double (§1.6.12)."""
    return b"\x82" + struct.pack(">d", value)


def compound(code: int, items: Iterable[bytes], count: int) -> bytes:
    """Encode a list (LIST32) or a map (MAP32) of ``count`` encoded items."""
    payload = b"".join(items)
    return (
        code.to_bytes(1, "big") + (len(payload) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + payload
    )
