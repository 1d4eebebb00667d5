"""Frames the broker sends: counted and kept as they leave, however the socket takes them."""

from __future__ import annotations

import pytest

from broker.amqp.guard.outgoing_frames import OutgoingFrames
from tests.unit.amqp.links.test_consumer import fill, receiver, transfers
from tests.unit.amqp.live import LiveBroker
from tests.wire.frames import AMQP_HEADER, performative

BIG = b"\x00\x53\x75\xb0\x00\x00\x27\x10" + bytes(10_000)


@pytest.mark.parametrize("body", [b"\x00\x53\x77\xa1\x02hi", BIG])
def test_transfers_are_counted_by_channel(body: bytes) -> None:
    broker = LiveBroker()
    fill(broker, 40, body)
    peer = receiver(broker, 30)
    assert len(transfers(peer)) == 30
    assert peer.io.outgoing.transfer_count(0) == 30
    assert peer.io.outgoing.transfer_count(1) == peer.io.outgoing.transfer_count(-1) == 0
    assert peer.io.outgoing.position() == (0, b"")
    assert not peer.io.outgoing.lost
    broker.close()


def test_a_session_begins_anew_on_its_channel() -> None:
    broker = LiveBroker()
    fill(broker, 3)
    peer = receiver(broker, 3)
    peer.send(performative(0x17))
    peer.turn()
    peer.begin()
    assert peer.io.outgoing.transfer_count(0) == 0
    broker.close()


def test_it_begins_behind_the_protocol_header() -> None:
    made = OutgoingFrames()
    assert made.position() == (len(AMQP_HEADER), b"")
    assert (made.rare, made.lost) == ([], False)
