"""A few messages that between them have whatever a selector can ask for."""

from __future__ import annotations

from uuid import UUID

from proton import Message, symbol, timestamp, ubyte, ulong


def _encoded(**fields: object) -> bytes:
    message = Message()
    for name, value in fields.items():
        setattr(message, name, value)
    return bytes(message.encode())


MESSAGES = (
    b"",
    _encoded(body="plain"),
    _encoded(
        body={"a": 1},
        durable=True,
        priority=7,
        ttl=3.5,
        id="id-1",
        user_id=b"me",
        address="orders",
        subject="red",
        reply_to="answers",
        correlation_id=UUID(int=7),
        content_type=symbol("text/plain"),
        expiry_time=2_000_000_000.0,
        creation_time=1_700_000_000.0,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="h",
        properties={"a": 1, "colour": "red", "x": 2.5, "yes": True, "no": False, "nothing": None},
        annotations={symbol("x-opt-jms-msg-type"): ubyte(5)},
    ),
    _encoded(
        body=b"bytes",
        id=ulong(5),
        correlation_id=b"\x00\xff",
        properties={
            "a": -(2**63),
            "colour": "größe",
            "x": float("nan"),
            "when": timestamp(1),
            "é": "x" * 300,
        },
    ),
    # Things that Proton would not write: a char, an array, text that isn't UTF-8, a name twice.
    b"\x00\x53\x74\xc1\x1e\x08\xa1\x01a\x73\x00\x00\x00\x41\xa1\x01b\xf0\x00\x00\x00\x05\x00\x00\x00\x00\x40"
    b"\xa1\x01a\x54\x01\xa1\x00\x40"[: 0x1E + 5],
)
