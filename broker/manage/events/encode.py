"""An event as an AMQP 1.0 message (§3.2): properties, application properties and one data section."""

from __future__ import annotations

from collections.abc import Mapping

_PROPERTIES, _APPLICATION_PROPERTIES, _DATA = b"\x00\x53\x73", b"\x00\x53\x74", b"\x00\x53\x75"
_NULL = b"\x40"
_SYMBOL, _STRING, _BINARY = 0xA3, 0xA1, 0xA0


def encode(subject: str, content_type: str, properties: Mapping[str, str | int], body: bytes) -> bytes:
    """The message; ``properties`` are texts and whole numbers."""
    fields = _NULL * 3 + _text(subject) + _NULL * 2 + _variable(_SYMBOL, content_type.encode())
    items = b"".join(
        _text(key) + (_text(value) if isinstance(value, str) else _long(value))
        for key, value in properties.items()
    )
    return b"".join(
        (
            *(_PROPERTIES, _compound(0xD0, fields, 7)),
            *(_APPLICATION_PROPERTIES, _compound(0xD1, items, 2 * len(properties))),
            *(_DATA, _variable(_BINARY, body)),
        )
    )


def _variable(short: int, payload: bytes) -> bytes:
    if len(payload) < 256:
        return bytes((short, len(payload))) + payload
    return bytes((short + 0x10,)) + len(payload).to_bytes(4, "big") + payload


def _text(value: str) -> bytes:
    return _variable(_STRING, value.encode())


def _long(value: int) -> bytes:
    return b"\x81" + value.to_bytes(8, "big", signed=True)


def _compound(code: int, items: bytes, count: int) -> bytes:
    return bytes((code,)) + (len(items) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + items
