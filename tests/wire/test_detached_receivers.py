"""The last word on what a receiver held when its link went: it is back in its queue, not settled as it said.

A client in second mode takes a settlement without an outcome for the broker's word that its own one holds
(§2.6.12), and may forget the message.
"""

from __future__ import annotations

import pytest

from tests.wire.conftest import RunningBroker
from tests.wire.frames import (
    ACCEPTED,
    ATTACH,
    BODY,
    DETACH,
    DISPOSITION,
    RECEIVER,
    RELEASED,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    Frame,
    RawPeer,
    Symbol,
    UByte,
    performative,
    transfer,
)

pytestmark = pytest.mark.wire

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
COUNT = 4


def accepted(number: object) -> bytes:
    """A receiver's outcome, which it waits to see confirmed."""
    return performative(DISPOSITION, RECEIVER, number, number, False, Described(ACCEPTED))


def said(peer: RawPeer) -> list[object]:
    """The outcomes of all that the broker has said of what it sent; None for a settlement without one."""
    found = [each for each in peer.log if each.code == DISPOSITION and each.field(0) is SENDER]
    return [getattr(each.field(4), "descriptor", None) for each in found]


def lasting(handle: int) -> bytes:
    """An attach in second mode of a receiver whose source is there for longer than its connection."""
    source = Described(SOURCE, ["orders", 1, Symbol("never")])
    return performative(ATTACH, "in", handle, RECEIVER, UByte(2), UByte(1), source, Described(TARGET))


def held(broker: RunningBroker, peer: RawPeer) -> list[Frame]:
    """What a receiver of handle 3 has of a queue of durable messages, in second mode."""
    peer.open().begin().attach_sender("orders")
    peer.await_credit()
    peer.send(*(transfer(number, DURABLE + BODY) for number in range(COUNT)))
    peer.attach_receiver("orders", "in", 3, second=True)
    peer.give_credit(COUNT, 3)
    return [peer.expect(TRANSFER) for _ in range(COUNT)]


def test_a_receiver_whose_link_is_stolen_holds_nothing_any_more(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as peer:
        numbers = [each.field(1) for each in held(broker, peer)]
        # Whoever attaches a name again steals the link.
        peer.attach_receiver("orders", "in", 4, second=True)
        peer.send(*map(accepted, numbers))
        peer.give_credit(COUNT, 4)
        assert all(peer.expect(TRANSFER).payload.endswith(BODY) for _ in range(COUNT))
        assert set(said(peer)) <= {RELEASED}


def test_an_outcome_behind_the_broker_s_detach_is_not_confirmed(broker: RunningBroker) -> None:
    with RawPeer(broker.port) as first, RawPeer(broker.port) as second:
        for peer in (first, second):
            peer.open(container="app").begin()
        first.attach_sender("orders")
        first.await_credit()
        first.send(*(transfer(number, DURABLE + BODY) for number in range(COUNT)))
        first.send(lasting(3))
        first.expect(ATTACH)
        first.give_credit(COUNT, 3)
        numbers = [first.expect(TRANSFER).field(1) for _ in range(COUNT)]
        # Of a link that lasts there is one in all connections of a container.
        second.send(lasting(3))
        assert first.expect(DETACH).condition == "amqp:link:stolen"
        first.send(*map(accepted, numbers))
        second.give_credit(COUNT, 3)
        assert all(second.expect(TRANSFER).payload.endswith(BODY) for _ in range(COUNT))
        # Nor once the peer has answered, which ends the link for good; what comes behind is answered later.
        first.send(performative(DETACH, 3, True), transfer(COUNT))
        while (found := first.expect(DISPOSITION)).field(0) is not RECEIVER or found.field(1) != COUNT:
            pass
        assert set(said(first)) <= {RELEASED}


@pytest.mark.parametrize("closed", [False, True], ids=["detach", "close"])
def test_what_a_receiver_leaves_unsettled_is_released(broker: RunningBroker, closed: bool) -> None:
    with RawPeer(broker.port) as peer:
        held(broker, peer)
        peer.send(performative(DETACH, 3, closed))
        peer.expect(DETACH)
        peer.attach_receiver("orders", "again", 4)
        peer.give_credit(COUNT, 4)
        assert all(peer.expect(TRANSFER).payload.endswith(BODY) for _ in range(COUNT))
        assert set(said(peer)) == {RELEASED}
