"""A message that says which it is, and whether it is whole."""

from __future__ import annotations

import hashlib

from proton import Message

from tests.crash.chaos.books import Id


def filler(id_: Id, size: int) -> bytes:
    """Bytes that only this message has."""
    seed = hashlib.blake2b(f"{id_}".encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def encoded(id_: Id, size: int) -> bytes:
    """A durable message of about ``size`` bytes; its header says first-acquirer."""
    name = f"{id_[0]}:{id_[1]}:{size}".encode()
    fields = bytes((0xA1, len(name))) + name
    properties = b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 1)) + fields
    body = filler(id_, size)
    return (
        b"\x00\x53\x70\xc0\x05\x04\x41\x40\x40\x41"
        + properties
        + b"\x00\x53\x75\xb0"
        + len(body).to_bytes(4, "big")
        + body
    )


def understood(data: bytes) -> tuple[Id, bool, bool]:
    """The id, whether the broker says that it was delivered before, and whether the body is what was sent."""
    message = Message()
    message.decode(data)
    producer, number, size = str(message.id).split(":")
    id_ = int(producer), int(number)
    body = message.body
    whole = isinstance(body, bytes | memoryview) and bytes(body) == filler(id_, int(size))
    return id_, not message.first_acquirer, whole
