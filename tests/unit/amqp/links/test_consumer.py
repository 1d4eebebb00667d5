"""A consumer's link: messages within its credit, and its outcomes in the queue."""

from __future__ import annotations

import re

import pytest

from broker.amqp.links.consumer import ConsumerLink
from tests.unit.amqp.live import LiveBroker, Peer
from tests.wire.frames import (
    ACCEPTED,
    BODY,
    DETACH,
    DISPOSITION,
    FLOW,
    MODIFIED,
    RECEIVER,
    REJECTED,
    RELEASED,
    TRANSFER,
    Described,
    Frame,
    performative,
    transfer,
)


def fill(broker: LiveBroker, count: int, body: bytes = BODY) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    for number in range(count):
        peer.send(transfer(number, body))
    peer.turn()
    peer.close()
    broker.turn(4)


def receiver(broker: LiveBroker, credit: int, mode: int = 2) -> Peer:
    peer = broker.connect()
    peer.attach_receiver("orders", mode=mode)
    peer.give_credit(credit)
    return peer.turn()


def link_of(peer: Peer) -> ConsumerLink:
    (link,) = peer.io.links
    assert isinstance(link, ConsumerLink)
    return link


def transfers(peer: Peer) -> list[Frame]:
    return [each for each in peer.log if each.code == TRANSFER]


def number(found: Frame, index: int) -> int:
    value = found.field(index)
    assert isinstance(value, int)
    return int(value)


def settle(peer: Peer, first: int, last: int, outcome: int, *fields: object) -> None:
    state = Described(outcome, fields)
    peer.send(performative(DISPOSITION, RECEIVER, first, last, True, state))
    peer.turn()


def test_messages_come_within_the_credit(broker: LiveBroker) -> None:
    fill(broker, 5)
    peer = receiver(broker, 3)
    assert [each.payload for each in transfers(peer)] == [BODY] * 3
    assert link_of(peer).in_flight == 3
    assert link_of(peer).credit() == 0
    assert link_of(peer).delivery_count() == 3


def test_tags_are_four_characters_and_used_again(broker: LiveBroker) -> None:
    fill(broker, 70)
    peer = receiver(broker, 70)
    first = tags(peer)
    assert len(set(first)) == len(first) == 70
    assert {chr(byte) for tag in first for byte in tag} <= {
        chr(code) for code in range(ord("0"), ord("o") + 1)
    }
    settle(peer, 5, 5, ACCEPTED)
    fill(broker, 1)
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 70, 1))
    peer.turn()
    assert tags(peer) == [*first, first[5]]


def tags(peer: Peer) -> list[bytes]:
    """The delivery-tags of all transfers so far, behind handle and delivery-id."""
    number = rb"(?:\x43|\x52.|\x70....)"
    return re.findall(rb"\x00\x53\x14\xc0.." + 2 * number + rb"\xa0\x04(....)", peer.turning.heard, re.DOTALL)


def test_what_is_accepted_is_gone(broker: LiveBroker) -> None:
    fill(broker, 3)
    peer = receiver(broker, 3)
    settle(peer, 0, 1, ACCEPTED)
    node = broker.node("orders")
    assert (node.queue.ready, node.queue.acquired) == (0, 1)
    assert link_of(peer).settled == 2


@pytest.mark.parametrize(("outcome", "fields"), [(RELEASED, ()), (MODIFIED, (True,)), (MODIFIED, ())])
def test_what_is_given_back_is_sent_again(
    broker: LiveBroker, outcome: int, fields: tuple[object, ...]
) -> None:
    fill(broker, 1)
    peer = receiver(broker, 1)
    settle(peer, 0, 0, outcome, *fields)
    assert broker.node("orders").queue.ready == 1
    again = receiver(broker, 1)
    (second,) = transfers(again)
    # The header's last field, delivery-count.
    assert (b"\x52\x01\x00\x53\x77" in second.payload) == bool(fields)


def test_what_is_rejected_is_no_more_in_the_queue(broker: LiveBroker) -> None:
    fill(broker, 1)
    peer = receiver(broker, 1)
    settle(peer, 0, 0, REJECTED)
    node = broker.node("orders")
    assert (node.queue.ready, node.queue.acquired) == (0, 0)


def test_presettled_messages_are_gone_when_they_are_sent(broker: LiveBroker) -> None:
    fill(broker, 2)
    peer = receiver(broker, 2, mode=1)
    assert [each.field(4) for each in transfers(peer)] == [True, True]
    assert link_of(peer).in_flight == 0
    assert broker.node("orders").queue.acquired == 0


def test_a_drain_gives_back_what_nothing_is_there_for(broker: LiveBroker) -> None:
    fill(broker, 2)
    peer = broker.connect()
    peer.attach_receiver("orders")
    peer.give_credit(5, drain=True)
    peer.turn()
    assert len(transfers(peer)) == 2
    flow = [each for each in peer.log if each.code == FLOW and each.field(4) is not None][-1]
    assert (flow.field(5), flow.field(6)) == (5, 0)
    assert link_of(peer).delivery_count() == 5


def test_an_echo_tells_what_is_available(broker: LiveBroker) -> None:
    fill(broker, 4)
    peer = broker.connect()
    peer.attach_receiver("orders")
    peer.give_credit(1, echo=True)
    peer.turn()
    flow = [each for each in peer.log if each.code == FLOW and each.field(4) is not None][-1]
    # One is on its way to it, three more are there.
    assert (number(flow, 5) + number(flow, 6), flow.field(7)) == (1, 3)


@pytest.mark.parametrize("polite", [True, False])
def test_a_link_that_goes_gives_back_what_it_held(broker: LiveBroker, polite: bool) -> None:
    fill(broker, 3)
    peer = receiver(broker, 3)
    if polite:
        peer.send(performative(DETACH, 1, True))
        peer.turn()
    else:
        peer.close()
        broker.turn(4)
    node = broker.node("orders")
    assert (node.queue.ready, node.queue.acquired) == (3, 0)
    # Its consumer may have seen each; only the first counts as a failed delivery.
    assert [(entry.delivery_count, entry.spared) for entry in node.queue] == [
        (1, False),
        (1, True),
        (1, True),
    ]


def test_a_peer_that_does_not_read_is_sent_no_more(broker: LiveBroker) -> None:
    body = b"\x00\x53\x75\xb0" + (60_000).to_bytes(4, "big") + bytes(60_000)
    fill(broker, 60, body)
    peer = broker.connect()
    peer.attach_receiver("orders")
    peer.give_credit(1000)
    broker.turn(10)
    link = link_of(peer)
    assert link.is_choked()
    assert link.unsent_bytes() <= peer.io.session_output + 2 * len(body)
    assert broker.node("orders").queue.ready > 0
    peer.turn()
    peer.turn()
    assert len(transfers(peer)) >= 60
    assert not link.is_choked()
