"""A stream's messages say at which offset they are, in two message annotations (AMQP 1.0 §3.2.3)."""

from __future__ import annotations

from broker.codec.encoding import MAP32, compound, symbol, text
from broker.codec.message import (
    after_descriptor,
    annotations_of,
    merged_maps,
    section_code,
    skip_value,
    with_annotations,
)
from broker.codec.splice import with_messages, with_numbers

OFFSET = "x-opt-sluice-offset"
# RabbitMQ's word for it.
STREAM_OFFSET = "x-stream-offset"
# The filter by which a reader says where it begins; RabbitMQ's.
OFFSET_SPEC = "rabbitmq:stream-offset-spec"
# The filter by which it asks for many messages in one delivery, and how many messages such a chunk has.
CHUNK_SPEC = "sluice:stream-chunk-spec"
CHUNK = "x-opt-sluice-chunk"

_OWN, _OTHER = symbol(OFFSET.encode()), symbol(STREAM_OFFSET.encode())
# A map of four, whose size and number stand in a byte each; both values are ulongs.
_HEAD = bytes((0xC1, 1 + len(_OWN) + len(_OTHER) + 18, 4)) + _OWN + b"\x80"
_MIDDLE = _OTHER + b"\x80"
_SECTION_HEAD = b"\x00\x53\x72" + _HEAD
_CHUNK_KEY = symbol(CHUNK.encode())
_CHUNK_HEAD = bytes((0x00, 0x53, 0x72, 0xC1, 1 + len(_OWN) + len(_CHUNK_KEY) + 18, 4)) + _OWN + b"\x80"
# As a C number where it is compiled.
ANNOTATIONS = 0x72
NULL = b"\x40"


def with_offset(data: bytes, offset: int) -> bytes:
    """Return the message with its offset; what its sender called so is replaced.

    It is longer by ``constants.STAMP_BYTES``, by less where the message has annotations.
    """
    at = following = 0
    end = len(data)
    code = -1
    while following >= 0 and at < end:
        code = section_code(data, at)
        if code < 0 or code >= ANNOTATIONS:
            break
        following = skip_value(data, after_descriptor(data, at), end)
        at = following if following >= 0 else at
    if code == ANNOTATIONS:
        added = with_numbers(b"", 0, _HEAD, _MIDDLE, offset)
        present = annotations_of(data)
        is_null = present == NULL
        return with_annotations(data, added if is_null else merged_maps(present, added))
    return with_numbers(data, at, _SECTION_HEAD, _MIDDLE, offset)


def chunk(messages: list[bytes], offset: int) -> bytes:
    """Return a message that has these of a stream in its data section, the first of them at ``offset``.

    Its annotations say that offset and how many there are.
    """
    head = b"".join(
        (_CHUNK_HEAD, offset.to_bytes(8, "big"), _CHUNK_KEY, b"\x80", len(messages).to_bytes(8, "big"))
    )
    return with_messages(head, messages)


def offset_filter(start: str | int) -> bytes:
    """Return the encoded filters of a source whose reader begins at an offset, or as a word says."""
    value = text(start) if isinstance(start, str) else b"\x80" + start.to_bytes(8, "big")
    name = symbol(OFFSET_SPEC.encode())
    return compound(MAP32, [name, b"\x00" + name + value], 2)
