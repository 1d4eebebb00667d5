"""The anonymous relay: each message to the node it names."""

from __future__ import annotations

from proton import Message

from broker.amqp.links.relay import RelayLink
from tests.unit.amqp.links.test_producer import outcomes
from tests.unit.amqp.live import LiveBroker, Peer
from tests.wire.frames import ACCEPTED, DETACH, REJECTED, transfer


def to(address: str | None) -> bytes:
    return bytes(Message(address=address, body="x").encode())


def relay(broker: LiveBroker, mode: int = 2) -> tuple[Peer, RelayLink]:
    peer = broker.connect()
    peer.attach_sender(None, mode=mode)
    peer.turn()
    (link,) = peer.io.links
    assert isinstance(link, RelayLink)
    return peer, link


def test_messages_go_where_they_name(broker: LiveBroker) -> None:
    peer, link = relay(broker)
    peer.send(transfer(0, to("a")), transfer(1, to("b")), transfer(2, to("a")))
    peer.turn()
    assert [broker.node(name).queue.ready for name in "ab"] == [2, 1]
    assert sorted(node.name for node, _ in link.open_accounts()) == ["a", "b"]
    assert {code for _, _, code in outcomes(peer)} == {ACCEPTED}


def test_a_message_to_nowhere_is_rejected_and_the_link_goes_on(broker: LiveBroker) -> None:
    peer, _ = relay(broker)
    peer.send(transfer(0, to(None)), transfer(1, to("a")))
    peer.turn()
    assert [(first, code) for first, _, code in outcomes(peer)] == [(0, REJECTED), (1, ACCEPTED)]


def test_a_settled_message_to_nowhere_ends_the_link_and_is_named(broker: LiveBroker) -> None:
    peer, _ = relay(broker, mode=1)
    peer.send(transfer(0, to(None), settled=True, tag=b"mine"))
    found = peer.expect(DETACH)
    assert found.condition is not None
    assert b"delivery-tag\xa0\x04mine" in peer.turning.heard


def test_accounts_close_with_the_link(broker: LiveBroker) -> None:
    peer, link = relay(broker)
    peer.send(transfer(0, to("a")))
    peer.turn()
    peer.close()
    broker.turn(4)
    assert link.open_accounts() == []
    assert broker.model.diagnostics.audit().breaches == ()
