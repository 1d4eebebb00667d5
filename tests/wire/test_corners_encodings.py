"""What a sender's codec wrote leaves as it came, byte for byte: every encoding of every type.

Two values that a client finds equal may be written otherwise; only bytes show that nothing was.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.wire.conftest import RunningBroker
from tests.wire.encodings import compound, described, list_of, map_of, random_value, simple
from tests.wire.frames import TRANSFER, RawPeer, performative, transfer

pytestmark = pytest.mark.wire

FLOW = 0x13
CREDIT = 1000
WINDOW = 100_000
KEY, NAME = b"\xa3\x01k", b"\xa1\x01k"
BODY = b"\x00\x53\x77\xa1\x02hi"


def section(code: int, value: bytes) -> bytes:
    return described(bytes((0x53, code)), value)


class Passage:
    """Sends messages through one queue and takes them again."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self.sent = 0

    def through(self, *messages: bytes) -> list[bytes]:
        """What becomes of them."""
        for message in messages:
            self.peer.send(transfer(self.sent, message))
            self.sent += 1
        return [self._next() for _ in messages]

    def _next(self) -> bytes:
        payload = b""
        while True:
            found = self.peer.expect(TRANSFER)
            payload += found.payload
            if not found.field(5):
                return payload


@pytest.fixture
def passage(broker: RunningBroker) -> Iterator[Passage]:
    with RawPeer(broker.port) as peer:
        peer.open().begin(WINDOW).attach_sender("typed")
        peer.await_credit()
        # Pre-settled, so that none waits for an outcome.
        peer.attach_receiver("typed", mode=1)
        peer.send(performative(FLOW, 0, WINDOW, 0, WINDOW, 1, 0, CREDIT))
        yield Passage(peer)


def test_every_encoding_as_a_value(passage: Passage) -> None:
    values = {**simple(), **compound()}
    messages = {name: section(0x77, value) for name, value in values.items()}
    assert dict(zip(messages, passage.through(*messages.values()), strict=True)) == messages


def test_every_encoding_in_lists_and_maps(passage: Passage) -> None:
    messages = {}
    for name, value in {**simple(), **compound()}.items():
        messages[f"list of {name}"] = section(0x76, list_of(value, value))
        messages[f"map to {name}"] = section(0x77, map_of(NAME, value))
        messages[f"map from {name}"] = section(0x77, map_of(value, NAME))
        messages[f"described {name}"] = section(0x77, described(KEY, value))
        messages[f"described by {name}"] = section(0x77, described(value, NAME))
    assert dict(zip(messages, passage.through(*messages.values()), strict=True)) == messages


@pytest.mark.parametrize("code", [0x72, 0x74, 0x78], ids=["annotations", "properties", "footer"])
def test_every_encoding_in_the_maps_of_a_message(passage: Passage, code: int) -> None:
    values = simple() if code == 0x74 else {**simple(), **compound()}
    key = NAME if code == 0x74 else KEY
    messages = {}
    for name, value in values.items():
        map_ = section(code, map_of(key, value, small=len(value) < 100))
        messages[name] = BODY + map_ if code == 0x78 else map_ + BODY
    assert dict(zip(messages, passage.through(*messages.values()), strict=True)) == messages


def test_every_encoding_of_an_id(passage: Passage) -> None:
    ids = ("ulong", "smallulong", "uuid", "binary", "string")
    values = {name: value for name, value in simple().items() if name.startswith(ids)}
    null = b"\x40"
    messages = {
        name: section(0x73, list_of(value, null, null, NAME, null, value)) + BODY
        for name, value in values.items()
    }
    assert len(messages) > 12
    assert dict(zip(messages, passage.through(*messages.values()), strict=True)) == messages


def test_values_within_values(passage: Passage) -> None:
    for seed in range(500):
        dice = random.Random(seed)
        message = section(0x77, random_value(dice))
        assert passage.through(message) == [message], f"seed {seed}"
