"""Encoded messages with a group-id and a group-sequence (AMQP 1.0 §3.2.4)."""

from __future__ import annotations

LAST = 0xFFFFFFFF


def grouped(group: str = "", sequence: int | None = None, body: bytes = b"x", **properties: str) -> bytes:
    """A message of a group, or of none, with application properties."""
    fields = [b"\x40"] * 10
    if group or sequence is not None:
        encoded = group.encode()
        fields.append(b"\xa1" + bytes((len(encoded),)) + encoded if group else b"\x40")
        if sequence is not None:
            fields.append(b"\x70" + sequence.to_bytes(4, "big"))
    payload = b"".join(fields)
    data = b"\x00\x53\x73\xc0" + bytes((len(payload) + 1, len(fields))) + payload
    if properties:
        pairs = b"".join(_text(each) for pair in properties.items() for each in pair)
        data += b"\x00\x53\x74\xc1" + bytes((len(pairs) + 1, 2 * len(properties))) + pairs
    return data + b"\x00\x53\x75\xa0" + bytes((len(body),)) + body


def body_of(data: bytes) -> bytes:
    """The body of such a message."""
    at = data.index(b"\x00\x53\x75\xa0")
    return data[at + 5 :]


def _text(value: str) -> bytes:
    return b"\xa1" + bytes((len(value),)) + value.encode()
