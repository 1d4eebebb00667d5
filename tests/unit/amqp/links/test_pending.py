"""Deliveries that wait for the disk: told in their order, once, and not where the peer has settled them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.store.memory import MemoryStore
from tests.unit.amqp.links.test_producer import outcomes
from tests.unit.amqp.live import LiveBroker
from tests.wire.frames import (
    ACCEPTED,
    BODY,
    DISPOSITION,
    RECEIVER,
    SENDER,
    Described,
    Frame,
    performative,
    transfer,
)

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41" + BODY
POLICIES = "policies: [{match: orders, durable: true}]"


@pytest.fixture
def broker() -> Iterator[LiveBroker]:
    made = LiveBroker(POLICIES, MemoryStore())
    yield made
    made.close()


def range_of(found: Frame) -> tuple[int, int]:
    """The first and the last delivery of a disposition."""
    first, last = found.field(1), found.field(2)
    assert isinstance(first, int)
    return int(first), int(last) if isinstance(last, int) else int(first)


def test_outcomes_are_told_in_order_once_the_messages_are_stored(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    # More than the first growth has room for.
    for number in range(100):
        peer.send(transfer(number, DURABLE))
    peer.turn()
    broker.sync()
    peer.turn()
    ranges = [range_of(each) for each in peer.log if each.code == DISPOSITION]
    assert [number for first, last in ranges for number in range(first, last + 1)] == list(range(100))
    assert {(settled, code) for _, settled, code in outcomes(peer)} == {(True, ACCEPTED)}


def test_a_delivery_that_its_sender_has_settled_is_told_nothing(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    peer.send(transfer(0, DURABLE) + performative(DISPOSITION, SENDER, 0, 0, True))
    peer.turn()
    broker.sync()
    peer.turn()
    assert broker.node("orders").queue.ready == 1
    assert broker.model.diagnostics.audit().breaches == ()


def test_a_consumers_settlement_is_confirmed_once_it_is_stored(broker: LiveBroker) -> None:
    source, peer = broker.connect(), broker.connect()
    source.attach_sender("orders")
    source.turn()
    source.send(transfer(0, DURABLE))
    source.turn()
    broker.sync()
    peer.attach_receiver("orders")
    peer.give_credit(1)
    peer.turn()
    # Its outcome alone: it waits for the broker's settlement.
    peer.send(performative(DISPOSITION, RECEIVER, 0, 0, False, Described(ACCEPTED)))
    peer.turn()
    broker.sync()
    peer.turn()
    confirmed = [each for each in peer.log if each.code == DISPOSITION]
    assert [bool(each.field(3)) for each in confirmed] == [True]


def test_a_link_may_go_before_its_messages_are_stored(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    peer.send(transfer(0, DURABLE))
    broker.turn()
    peer.close()
    broker.turn(4)
    broker.sync()
    assert broker.node("orders").queue.ready == 1
