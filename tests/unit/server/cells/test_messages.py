"""What a cell says to another: written and read again, and refused where it makes no sense."""

from __future__ import annotations

import json
import random

import pytest

from broker.amqp.loop.handover import MOST_BYTES
from broker.security.exchange import ListenerTrust
from broker.security.identity import Identity
from broker.server.cells import messages
from broker.server.cells.messages import HEAD_BYTES, MessageError

WHO = Identity("otto", frozenset({"operators", "readers"}), "SCRAM-SHA-256", "zoë")
DOOR = ListenerTrust(loopback=True, listener="amqp://127.0.0.1:5672")
STEPS = ((False, b"AMQP"), (True, b""), (True, b"\x00\x01"), (False, b"x" * 1000))


def message() -> bytes:
    steps, data = messages.step_fields(STEPS)
    fields = {**messages.client_fields("127.0.0.1:4711", DOOR, WHO, 2.5), **steps}
    return messages.written(messages.CONNECTION, fields, data)


def test_a_client_and_its_steps_arrive_as_they_were() -> None:
    fields, data = messages.read(message())
    assert fields["kind"] == messages.CONNECTION
    assert messages.client_of(fields) == ("127.0.0.1:4711", DOOR, WHO, 2.5)
    assert messages.steps_of(fields, data) == STEPS


def test_what_is_missing_is_known_at_every_byte() -> None:
    whole = message()
    received = b""
    while missing := messages.missing_bytes(received):
        assert len(received) + missing <= len(whole)
        received += whole[len(received) : len(received) + random.Random(len(received)).randint(1, missing)]
    assert received == whole


@pytest.mark.parametrize(
    "received",
    [
        b"GET / HTTP/1.1\r\n",
        message()[:8] + bytes([messages.VERSION + 1]) + message()[9:],
        message()[:8] + bytes([messages.VERSION - 1]) + message()[9:],
        message()[:12] + (1 << 30).to_bytes(4, "big") + message()[16:],
        message()[:16] + (MOST_BYTES + 1).to_bytes(4, "big") + message()[20:],
    ],
)
def test_what_is_no_message_is_refused_before_it_is_read(received: bytes) -> None:
    with pytest.raises(MessageError):
        messages.missing_bytes(received)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"kind": 1}', b"[" * 100_000])
def test_text_that_makes_no_sense_is_refused(text: bytes) -> None:
    whole = message()[:12] + len(text).to_bytes(4, "big") + bytes(4) + text
    assert messages.missing_bytes(whole) == 0
    with pytest.raises(MessageError):
        messages.read(whole)


def test_fields_that_are_lacking_or_wrong_are_refused() -> None:
    fields, data = messages.read(message())
    for name in ("address", "door", "identity", "seconds"):
        with pytest.raises(MessageError):
            messages.client_of({key: value for key, value in fields.items() if key != name})
    with pytest.raises(MessageError):
        messages.client_of({**fields, "door": {"loopback": True, "other": 1}})
    for steps in ([[0, 1]], [[0]], "steps", [[0, len(data) + 1]], None):
        with pytest.raises(MessageError):
            messages.steps_of({**fields, "steps": steps}, data)
    assert len(json.dumps(fields)) < HEAD_BYTES + messages.MOST_TEXT
