"""What a rejected message takes with it to ``deadLetterAddress``: why it was rejected, where, how often.

The broker's own dead letters are the model: whoever reads both need not tell them apart.
"""

from __future__ import annotations

import time
from typing import Any

from proton import Array, Described, Message, int32, symbol, timestamp, uint

from .errors import RefusedError

_REASON = symbol("x-opt-sluice-dead-letter-reason")
_ADDRESS = symbol("x-opt-sluice-original-address")
_TIME = symbol("x-opt-sluice-dead-letter-time")
_COUNT = symbol("x-opt-sluice-dead-letter-count")
_TTL = symbol("x-opt-sluice-original-ttl")
_EXPIRY = symbol("x-opt-sluice-original-expiry-time")
_MOST = (1 << 32) - 1
_MOST_SIGNED = (1 << 31) - 1


def annotated(message: bytes, address: str | None, why: RefusedError) -> bytes:
    """The message, its id kept, with the annotations and properties that the broker's own dead letters have.

    The original address is the first one's, where it was a dead letter before. It expires no more, lest
    it does where it is to be looked into: when it would have is an annotation. Its deliveries are counted
    anew.
    """
    found = _decoded(message)
    annotations = dict(found.annotations or {})
    before = annotations.get(_COUNT)
    count = before if isinstance(before, uint) else 0
    first = annotations.get(_ADDRESS)
    if not count or not isinstance(first, str) or isinstance(first, symbol):
        first = address or found.address or ""
    count = min(count + 1, _MOST)
    annotations |= {
        _REASON: str(why),
        _ADDRESS: first,
        _TIME: timestamp(int(time.time() * 1000)),
        _COUNT: uint(count),
    }
    if found.ttl:
        annotations[_TTL] = uint(round(found.ttl * 1000))
    if found.expiry_time:
        annotations[_EXPIRY] = timestamp(round(found.expiry_time * 1000))
    found.annotations = annotations
    properties: Any = {
        **(found.properties or {}),
        "sluice_dead_letter_reason": str(why),
        "sluice_dead_letter_origin": first,
        "sluice_dead_letter_count": int32(min(count, _MOST_SIGNED)),
    }
    found.properties = properties
    found.ttl, found.expiry_time, found.first_acquirer, found.delivery_count = 0, 0, False, 0
    return bytes(found.encode())


def id_of(message: bytes) -> object:
    """The message-id."""
    return _decoded(message).id


def _decoded(encoded: bytes) -> Message:
    """The message, its binaries its own: Proton's are views of memory that encoding it writes over."""
    message = Message()
    message.decode(encoded)
    message.instructions, message.annotations = _owned(message.instructions), _owned(message.annotations)
    message.properties, message.body = _owned(message.properties), _owned(message.body)
    return message


def _owned(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {_owned(key): _owned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_owned(item) for item in value]
    if isinstance(value, Described):
        return Described(_owned(value.descriptor), _owned(value.value))
    if isinstance(value, Array):
        return Array(_owned(value.descriptor), value.type, *map(_owned, value.elements))
    return value
