"""The few AMQP 1.0 encodings a sender needs, and finding the body of what arrives.

Messages are built from sections (§3.2); a fixed head is encoded once and put before each body.
Only bodies of plain text or bytes are read here; ``shown`` leaves the rest to Proton's decoder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from broker.codec.encoding import MAP32, NULL, binary, boolean, compound, double, long, text
from broker.codec.encoding import section as section
from broker.codec.message import value_end

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE = 0x75, 0x76, 0x77

_LISTS_AND_MAPS = (0x45, 0xC0, 0xC1, 0xD0, 0xD1)

Plain = str | int | float | bool | None
# What Proton's decoder raises on bytes that no client should have sent, beside its own exception: what is no
# UTF-8, what can't be a key, what is nested too deep.
UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


def plain(value: Plain) -> bytes:
    """A string, long, double, boolean or null, by the value's type."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return boolean(value)
    if isinstance(value, int):
        return long(value)
    return double(value) if isinstance(value, float) else text(value)


def mapping(values: Mapping[str, Plain]) -> bytes:
    """A map with strings as keys (§1.6.23)."""
    items = (text(key) + plain(value) for key, value in values.items())
    return compound(MAP32, items, 2 * len(values))


def header(*, durable: bool = False) -> bytes:
    """The header section; nothing where every field has its default."""
    return section(HEADER) + b"\xc0\x02\x01\x41" if durable else b""


def application_properties(values: Mapping[str, Plain]) -> bytes:
    """The application-properties section; nothing where there are none."""
    return section(APPLICATION_PROPERTIES) + mapping(values) if values else b""


def text_body(value: str) -> bytes:
    """An amqp-value section that holds a string."""
    return section(VALUE) + text(value)


def binary_body(value: bytes) -> bytes:
    """A data section."""
    return section(DATA) + binary(value)


def body_start(message: bytes) -> int:
    """Where the body's section begins, the end if there is none; ValueError for what is no message."""
    # Proton encodes into bytearrays.
    message = bytes(message)
    at = 0
    while at < len(message):
        if message[at : at + 2] != b"\x00\x53":
            raise ValueError("no section")
        if message[at + 2] >= DATA:
            return at
        code = message[at + 3]
        if code not in _LISTS_AND_MAPS:
            raise ValueError(f"no list or map: 0x{code:02x}")
        at = value_end(message, at + 3, len(message), 0)
        if at < 0:
            raise ValueError("cut off")
    return at


def shown(message: bytes) -> str:
    """A message's body as one text: a string as it is, bytes as text where they are, the rest as JSON."""
    try:
        start = body_start(message)
        quick = _quick(message, start) if start < len(message) else b""
    except (ValueError, IndexError):
        return repr(message)
    return _decoded(message[start:]) if quick is None else quick.decode("utf-8", "backslashreplace")


def _quick(message: bytes, start: int) -> bytes | None:
    """The payload if the body is one string or one data section, which nearly every body is."""
    code = message[start + 3]
    if code in (0xA0, 0xA1):
        begin, size = start + 5, message[start + 4]
    elif code in (0xB0, 0xB1):
        begin, size = start + 8, int.from_bytes(message[start + 4 : start + 8], "big")
    else:
        return None
    return message[begin : begin + size] if begin + size == len(message) else None


def described(message: bytes) -> dict[str, object]:
    """A message as JSON can say it: body, application properties and the properties that are set."""
    from proton import ProtonException

    from broker.codec.owned import decode_message

    if not message:
        # Proton's decoder has no answer to that.
        return {"error": "no bytes", "encoded": ""}
    named = ("id", "subject", "address", "reply_to", "correlation_id", "content_type", "group_id")
    found: dict[str, object]
    try:
        decoded = decode_message(message)
        # Proton reads an absent content type as the word None, and text only when it is asked for.
        given = {name: value for name in named if (value := getattr(decoded, name)) and str(value) != "None"}
        found = {name: _jsonable(value) for name, value in given.items()}
    except (ProtonException, *UNREADABLE) as error:
        return {"error": str(error), "encoded": message.hex()}
    if decoded.properties:
        found["application_properties"] = _jsonable(decoded.properties)
    return found | {"durable": decoded.durable, "body": _jsonable(decoded.body)}


def _decoded(body: bytes) -> str:
    from proton import ProtonException

    from broker.codec.owned import decode_message

    try:
        value = _jsonable(decode_message(body).body)
    except (ProtonException, *UNREADABLE):
        return repr(body)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _jsonable(value: object) -> object:
    """A value as JSON knows it: bytes, whatever they hold, and keys of maps as text, others in words."""
    if isinstance(value, memoryview | bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
