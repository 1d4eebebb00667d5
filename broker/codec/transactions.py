"""Requests to a transaction coordinator: declare and discharge (AMQP 1.0 §4.5.2, §4.5.3)."""

from __future__ import annotations

from dataclasses import dataclass

from broker.codec import sasl
from broker.codec.bodyscan import body_start, code_at
from broker.codec.message import after_descriptor

DECLARE = 0x31
DISCHARGE = 0x32
_NAMES = {b"amqp:declare:list": DECLARE, b"amqp:discharge:list": DISCHARGE}
_AMQP_VALUE = 0x77
_TRUE = (b"\x41", b"\x56\x01")
_NULL = 0x40


@dataclass(frozen=True, slots=True)
class CoordinatorRequest:
    """What a controller asks for: to declare a transaction, or to discharge the one of this ``name``.

    A declaration that is global has the ``name`` it gives, where that is one of bytes.
    """

    declares: bool
    is_global: bool = False
    name: bytes = b""
    fail: bool = False


def parse(message: bytes) -> CoordinatorRequest | None:
    """Return the request that an encoded message is; None if it is neither."""
    start = body_start(message)
    if start < 0 or code_at(message, start, len(message)) != _AMQP_VALUE:
        return None
    body = message[after_descriptor(message, start) :]
    found = sasl.performative(body, _NAMES)
    if found is None:
        return None
    code, places = found
    if code == DECLARE:
        if not places or body[places[0][0]] == _NULL:
            return CoordinatorRequest(True)
        return CoordinatorRequest(True, is_global=True, name=sasl.binary(body, places[0]) or b"")
    if code != DISCHARGE or not places:
        return None
    name = sasl.binary(body, places[0])
    if name is None:
        return None
    fail = len(places) > 1 and body[slice(*places[1])] in _TRUE
    return CoordinatorRequest(False, name=name, fail=fail)


def declare(name: bytes) -> bytes:
    """Return the message that declares a global transaction of this name, of at most 200 bytes."""
    return _message(DECLARE, 1, _binary(name))


def discharge(name: bytes, *, fail: bool) -> bytes:
    """Return the message that discharges a transaction, whose name has at most 200 bytes."""
    return _message(DISCHARGE, 2, _binary(name) + (b"\x41" if fail else b"\x42"))


def _message(code: int, count: int, fields: bytes) -> bytes:
    size = len(fields) + 1
    return bytes((0x00, 0x53, _AMQP_VALUE, 0x00, 0x53, code, 0xC0, size, count)) + fields


def _binary(value: bytes) -> bytes:
    return bytes((0xA0, len(value))) + value
