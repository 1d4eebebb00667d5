"""SASL's frames as bytes (AMQP 1.0 §5.3): what the broker and our own client both write and read.

No state and no I/O. What is read may come from anybody: nothing is believed that isn't there.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.codec import encoding
from broker.codec.encoding import LIST32, NULL, compound, symbol, text
from broker.codec.message import skip_value

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

MECHANISMS = 0x40
INIT = 0x41
CHALLENGE = 0x42
RESPONSE = 0x43
OUTCOME = 0x44

# §5.3.3.6
OK = 0
AUTH = 1
SYS_PERM = 3
SYS_TEMP = 4

_NAMES = {
    b"amqp:sasl-mechanisms:list": MECHANISMS,
    b"amqp:sasl-init:list": INIT,
    b"amqp:sasl-challenge:list": CHALLENGE,
    b"amqp:sasl-response:list": RESPONSE,
    b"amqp:sasl-outcome:list": OUTCOME,
}


def mechanisms(names: tuple[str, ...]) -> bytes:
    """The server's first frame: what it offers, its favourite first."""
    encoded = [name.encode() for name in names]
    symbols = b"".join(bytes((len(name),)) + name for name in encoded)
    return _frame(MECHANISMS, bytes((0xE0, len(symbols) + 2, len(encoded), 0xA3)) + symbols, 1)


def init(mechanism: str, response: bytes | None, hostname: str = "") -> bytes:
    """The client's choice, with what it has to say already."""
    host = text(hostname) if 0 < len(hostname.encode()) < 256 else NULL
    return _frame(INIT, symbol(mechanism.encode()) + _binary(response) + host, 3)


def challenge(challenge_bytes: bytes) -> bytes:
    """The server asks."""
    return _frame(CHALLENGE, _binary(challenge_bytes), 1)


def response(response_bytes: bytes) -> bytes:
    """The client answers."""
    return _frame(RESPONSE, _binary(response_bytes), 1)


def outcome(code: int, additional: bytes = b"") -> bytes:
    """The server's last word; ``additional`` goes with success only."""
    if not additional:
        return _frame(OUTCOME, bytes((0x50, code)), 1)
    return _frame(OUTCOME, bytes((0x50, code)) + _binary(additional), 2)


def performative(
    body: bytes, names: Mapping[bytes, int] = _NAMES
) -> tuple[int, list[tuple[int, int]]] | None:
    """Which of SASL's frames it is, and where each of its fields begins and ends; None if it is none.

    ``names`` are the descriptors that may be symbols, with their codes.
    """
    if len(body) < 2 or body[0] != 0:
        return None
    end = skip_value(body, 1, len(body))
    if end < 0:
        return None
    code = _code(body, 1, end, names)
    if code is None or skip_value(body, end, len(body)) != len(body):
        return None
    found = _fields(body, end)
    return None if found is None else (code, found)


def binary(body: bytes, place: tuple[int, int]) -> bytes | None:
    """A field that is a binary or a symbol; None for null and for anything else."""
    at, end = place
    kind = body[at]
    if kind in (0xA0, 0xA3):
        return body[at + 2 : end]
    if kind in (0xB0, 0xB3):
        return body[at + 5 : end]
    return None


def _code(body: bytes, at: int, end: int, names: Mapping[bytes, int]) -> int | None:
    kind = body[at]
    if kind == 0x53:
        return body[at + 1]
    if kind == 0x80:
        return int.from_bytes(body[at + 1 : end], "big")
    name = binary(body, (at, end))
    return None if name is None else names.get(name)


def _fields(body: bytes, at: int) -> list[tuple[int, int]] | None:
    """The places of a list's items; the list itself is known to fit."""
    kind = body[at]
    if kind == 0x45:
        return []
    if kind == 0xC0 and len(body) > at + 2:
        count, at = body[at + 2], at + 3
    elif kind == 0xD0 and len(body) > at + 8:
        count, at = int.from_bytes(body[at + 5 : at + 9], "big"), at + 9
    else:
        return None
    places: list[tuple[int, int]] = []
    while at < len(body) and len(places) < count:
        end = skip_value(body, at, len(body))
        if end < 0:
            return None
        places.append((at, end))
        at = end
    return places if len(places) == count and at == len(body) else None


def _binary(value: bytes | None) -> bytes:
    return NULL if value is None else encoding.binary(value)


def _frame(code: int, fields: bytes, count: int) -> bytes:
    if len(fields) < 255:
        listed = bytes((0xC0, len(fields) + 1, count)) + fields
    else:
        listed = compound(LIST32, (fields,), count)
    body = b"\x00\x53" + bytes((code,)) + listed
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body
