"""Credit that names a transaction (AMQP 1.0 §4.4.3): its link is refused, and nothing is acquired by it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.client.link import Connection
from tests.wire.conftest import RunningBroker
from tests.wire.frames import BODY, DETACH, FLOW, TRANSFER, RawPeer, Symbol, performative
from tests.wire.seeing import number_of

pytestmark = pytest.mark.wire

IN, OTHER = 1, 2


def give_credit(peer: RawPeer, handle: int, properties: object, credit: int = 10) -> None:
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, handle, 0, credit, None, False, False, properties))


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[RawPeer]:
    """A client with two links to receive on; the queue of the first has three messages."""
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        for _ in range(3):
            sender.send(BODY, 10)
        sender.flush(10)
    with RawPeer(broker.port) as opened:
        opened.open().begin()
        opened.attach_receiver("orders", handle=IN)
        opened.attach_receiver("others", name="others", handle=OTHER)
        yield opened


@pytest.mark.parametrize("key", [Symbol("txn-id"), "txn-id"])
def test_its_link_is_detached_and_gets_nothing(broker: RunningBroker, peer: RawPeer, key: object) -> None:
    give_credit(peer, IN, {Symbol("x"): 1, key: b"any"})
    detach = peer.expect(DETACH)
    assert detach.condition == "amqp:not-implemented"
    assert "txn-id" in str(detach.field(2))
    assert number_of(broker, "orders", "delivered") == 0
    assert number_of(broker, "orders", "consumers") == 0
    assert number_of(broker, "orders", "depth_msgs") == 3


def test_the_session_and_its_other_links_go_on(broker: RunningBroker, peer: RawPeer) -> None:
    give_credit(peer, IN, {Symbol("txn-id"): b"any"})
    peer.expect(DETACH)
    peer.send(performative(DETACH, IN, True))
    with Connection(broker.url) as connection:
        sender = connection.sender("others")
        sender.send(BODY, 10)
        sender.flush(10)
        give_credit(peer, OTHER, None)
        assert peer.expect(TRANSFER).field(0) is not None
    peer.attach_receiver("orders", handle=IN)
    give_credit(peer, IN, None)
    for _ in range(3):
        peer.expect(TRANSFER)


@pytest.mark.parametrize("properties", [{}, {Symbol("txn-id"): None}, {Symbol("other"): b"txn-id"}, None])
def test_other_properties_are_ignored(peer: RawPeer, properties: object) -> None:
    give_credit(peer, IN, properties)
    for _ in range(3):
        peer.expect(TRANSFER)
