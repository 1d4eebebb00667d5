"""A producer's link: credit, and an outcome for each message in whatever way the peer settles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.amqp.links.producer import ProducerLink
from tests.unit.amqp.live import LiveBroker, Peer
from tests.wire.frames import (
    ACCEPTED,
    BODY,
    DETACH,
    DISPOSITION,
    REJECTED,
    SENDER,
    Frame,
    performative,
    transfer,
)

SMALL = """
policies:
  - {match: small, flow_stop_count: 2, max_count: 3}
  - {match: full, max_count: 1, overflow: reject}
"""


@pytest.fixture
def broker() -> Iterator[LiveBroker]:
    made = LiveBroker(SMALL)
    yield made
    made.close()


def link_of(peer: Peer) -> ProducerLink:
    (link,) = peer.io.links
    assert isinstance(link, ProducerLink)
    return link


def outcomes(peer: Peer) -> list[tuple[int, bool, int]]:
    """Each disposition so far: the first delivery, whether it is settled, and the outcome's code."""
    return [
        (int(str(each.fields[1]).strip("uint()")), bool(each.field(3)), code_of(each))
        for each in peer.log
        if each.code == DISPOSITION
    ]


def code_of(found: Frame) -> int:
    state = found.field(4)
    return 0 if state is None else int(getattr(state, "descriptor", 0))


def test_credit_is_granted_and_a_message_is_accepted(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    credit = peer.await_credit()
    assert link_of(peer).credit() == credit > 0
    peer.send(transfer(0))
    peer.turn()
    assert outcomes(peer) == [(0, True, ACCEPTED)]
    assert broker.node("orders").queue.ready == 1
    assert link_of(peer).received == 1


def test_a_peer_that_settles_second_is_waited_for(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders", second=True)
    peer.turn()
    peer.send(transfer(0), transfer(1))
    peer.turn()
    assert {settled for _, settled, _ in outcomes(peer)} == {False}
    assert link_of(peer).unconfirmed == 2
    peer.send(performative(DISPOSITION, SENDER, 0, 1, True))
    peer.turn()
    assert link_of(peer).unconfirmed == 0


def test_a_peer_that_never_settles_second_ends_its_link(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders", second=True)
    peer.turn()
    link_of(peer).most_unconfirmed = 1
    peer.send(transfer(0), transfer(1))
    assert peer.expect(DETACH).condition == "amqp:resource-limit-exceeded"


def test_a_malformed_message_is_rejected_and_the_link_goes_on(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    peer.send(transfer(0, b"\x00\x53\x75\xa0\x09x"), transfer(1))
    peer.turn()
    assert [(first, code) for first, _, code in outcomes(peer)] == [(0, REJECTED), (1, ACCEPTED)]


def test_a_malformed_message_that_is_settled_ends_the_link(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders", mode=1)
    peer.turn()
    peer.send(transfer(0, b"\x00\x53\x75\xa0\x09x", settled=True))
    assert peer.expect(DETACH).condition == "amqp:decode-error"


def test_a_message_that_is_to_be_delayed_is_taken_and_waits(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    # Longer than a busy machine takes for a turn.
    note = b"\xa3\x14x-opt-delivery-delay\x81" + (60_000).to_bytes(8, "big")
    annotations = b"\x00\x53\x72\xc1" + bytes((len(note) + 1, 2)) + note
    peer.send(transfer(0, annotations + BODY))
    peer.turn()
    assert [code for _, _, code in outcomes(peer)] == [ACCEPTED]
    node = broker.node("orders")
    assert node.schedule is not None
    assert (node.queue.ready, node.gate.depth_msgs, node.schedule.count) == (0, 1, 1)


def test_a_delay_that_cannot_be_read_is_refused(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    note = b"\xa3\x14x-opt-delivery-delay\xa1\x04soon"
    annotations = b"\x00\x53\x72\xc1" + bytes((len(note) + 1, 2)) + note
    peer.send(transfer(0, annotations + BODY))
    peer.turn()
    assert [code for _, _, code in outcomes(peer)] == [REJECTED]
    assert broker.node("orders").gate.depth_msgs == 0


def test_delivery_annotations_end_at_the_broker(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    peer.send(transfer(0, b"\x00\x53\x71\xc1\x05\x02\xa3\x01k\x41" + BODY))
    peer.turn()
    assert [entry.data for entry in broker.node("orders").queue] == [BODY]


def test_a_node_that_rejects_says_so_for_each_message(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("full")
    peer.turn()
    peer.send(transfer(0), transfer(1))
    peer.turn()
    assert sorted((first, code) for first, _, code in outcomes(peer)) == [(0, ACCEPTED), (1, REJECTED)]


def test_more_than_was_ever_granted_ends_the_link(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("small")
    most = peer.turn().may_send()
    assert 0 < most <= 3
    peer.send(*(transfer(number) for number in range(most + 1)))
    assert peer.expect(DETACH).condition == "amqp:link:transfer-limit-exceeded"
    assert broker.node("small").queue.ready == most


def test_a_link_that_goes_leaves_nothing_behind(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    link = link_of(peer.turn())
    peer.send(performative(DETACH, 0, True))
    peer.turn()
    assert link.dead
    assert peer.io.links == set()
    assert broker.model.diagnostics.audit().breaches == ()


def test_a_link_fails_with_an_error_once(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    link = link_of(peer.turn())
    link.fail("amqp:internal-error", "on purpose")
    found = peer.expect(DETACH)
    assert found.condition == "amqp:internal-error"
    assert found.field(1) is True
