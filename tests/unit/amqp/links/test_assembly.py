"""Messages that come in several transfers: counted while under way, in the end whole or forgotten."""

from __future__ import annotations

import pytest

from tests.unit.amqp.live import LiveBroker, Peer
from tests.wire.frames import DETACH, DISPOSITION, transfer

LIMIT = {"limits.max_message_size": "8 KB"}


def message(size: int) -> bytes:
    """A message whose body has so many bytes."""
    return b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)


def sender(broker: LiveBroker, address: str = "orders") -> Peer:
    peer = broker.connect()
    peer.attach_sender(address)
    return peer.turn()


def pieces(data: bytes, size: int, number: int = 0) -> list[bytes]:
    """The transfers of one delivery, of so many bytes each."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return [transfer(number, part, more=part is not parts[-1]) for part in parts]


@pytest.mark.parametrize("size", [100, 511, 512, 700, 5000])
def test_pieces_of_any_size_are_one_message(broker: LiveBroker, size: int) -> None:
    peer = sender(broker)
    peer.send(*pieces(message(3000), size))
    peer.turn()
    node = broker.node("orders")
    assert [entry.data for entry in node.queue] == [message(3000)]
    assert broker.model.diagnostics.audit().breaches == ()


def test_pieces_take_memory_until_the_sender_aborts(broker: LiveBroker) -> None:
    peer = sender(broker)
    before = broker.engine.depths.memory.depth_bytes
    first, *_ = pieces(message(3000), 2000)
    peer.send(first)
    peer.turn()
    assert broker.engine.depths.memory.depth_bytes == before + 2000
    peer.send(transfer(0, b"", more=True, aborted=True), transfer(1))
    peer.turn()
    assert broker.node("orders").queue.ready == 1
    # A delivery that was aborted used up a credit, which is granted again.
    assert peer.io.received == 1


def test_pieces_go_with_their_link(broker: LiveBroker) -> None:
    peer = sender(broker)
    before = broker.engine.depths.memory.depth_bytes
    peer.send(pieces(message(3000), 2000)[0])
    peer.turn()
    peer.close()
    broker.turn(4)
    assert broker.engine.depths.memory.depth_bytes == before
    assert broker.model.diagnostics.audit().breaches == ()


@pytest.mark.parametrize("size", [10_000, 4000])
def test_a_message_larger_than_the_limit_ends_its_link(size: int) -> None:
    broker = LiveBroker(flags=LIMIT)
    peer = sender(broker)
    peer.send(*pieces(message(9000), size))
    assert peer.expect(DETACH).condition == "amqp:link:message-size-exceeded"
    assert broker.engine.depths.memory.depth_bytes == 0
    broker.close()


def test_a_large_message_goes_on_behind_the_pieces_before_it(broker: LiveBroker) -> None:
    peer = sender(broker)
    peer.send(*pieces(message(200_000), 30_000), transfer(1))
    peer.turn()
    answers = [each for each in peer.log if each.code == DISPOSITION]
    assert answers
    assert [len(entry.data) > 1000 for entry in broker.node("orders").queue] == [True, False]
