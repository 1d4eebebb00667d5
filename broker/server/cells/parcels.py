"""A queue's content as one cell sends it to another: frames with messages, ids, and the end. No I/O.

A frame is a letter, the length of what follows (big-endian) and that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from broker.engine.handoff import HandedMessage

MESSAGES, IDS, END = b"M", b"I", b"E"
HEAD = struct.Struct(">cI")
MOST_BYTES = 1 << 30
_MESSAGE = struct.Struct(">BIqqI")
_ID = struct.Struct(">qI")


class ParcelError(Exception):
    """What came is no frame of a cell's."""


def frame(kind: bytes, data: bytes = b"") -> bytes:
    """Return a frame."""
    return HEAD.pack(kind, len(data)) + data


def head_of(data: bytes) -> tuple[bytes, int]:
    """Read a frame's letter and length. ParcelError where it is none."""
    kind, length = HEAD.unpack(data)
    if kind not in (MESSAGES, IDS, END) or length > MOST_BYTES:
        raise ParcelError(f"a frame {kind!r} of {length} bytes")
    return kind, length


def written_messages(messages: Sequence[HandedMessage]) -> bytes:
    """Return messages as bytes."""
    parts: list[bytes] = []
    for each in messages:
        numbers = each.flags, each.delivery_count, each.expires_ms, each.due_ms, len(each.data)
        parts += _MESSAGE.pack(*numbers), each.data
    return b"".join(parts)


def read_messages(data: bytes) -> list[HandedMessage]:
    """Read what ``written_messages`` has written. ParcelError for anything else."""
    found: list[HandedMessage] = []
    at = 0
    while at < len(data):
        try:
            *numbers, length = _MESSAGE.unpack_from(data, at)
        except struct.error as fault:
            raise ParcelError(str(fault)) from fault
        at += _MESSAGE.size
        body = data[at : at + length]
        if len(body) < length:
            raise ParcelError("a message is cut off")
        at += length
        flags, delivery_count, expires_ms, due_ms = numbers
        found.append(HandedMessage(flags, delivery_count, expires_ms, due_ms, body))
    return found


def written_ids(ids: Sequence[tuple[bytes, int]]) -> bytes:
    """Return message-ids, each with when it came, as bytes."""
    return b"".join(_ID.pack(when_ms, len(each)) + each for each, when_ms in ids)


def read_ids(data: bytes) -> list[tuple[bytes, int]]:
    """Read what ``written_ids`` has written. ParcelError for anything else."""
    found: list[tuple[bytes, int]] = []
    at = 0
    while at < len(data):
        try:
            when_ms, length = _ID.unpack_from(data, at)
        except struct.error as fault:
            raise ParcelError(str(fault)) from fault
        at += _ID.size
        if at + length > len(data):
            raise ParcelError("an id is cut off")
        found.append((data[at : at + length], when_ms))
        at += length
    return found
