"""Links to the management node: requests go to a function."""

from __future__ import annotations

from broker.amqp.links.sink import SinkLink
from tests.unit.amqp.links.test_producer import outcomes
from tests.unit.amqp.live import LiveBroker
from tests.wire.frames import ACCEPTED, DETACH, transfer


def test_requests_are_accepted_and_credit_is_kept_up(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("$management")
    credit = peer.turn().may_send()
    (link,) = peer.io.links
    assert isinstance(link, SinkLink)
    assert credit > 0
    for number in range(credit + 5):
        peer.send(transfer(number))
        peer.turn()
    assert len(outcomes(peer)) == credit + 5
    assert {code for _, _, code in outcomes(peer)} == {ACCEPTED}
    assert peer.may_send() > credit


def test_a_request_is_held_in_memory_and_no_larger_than_the_limit() -> None:
    broker = LiveBroker(flags={"limits.max_request_size": "4 KB"})
    peer = broker.connect()
    peer.attach_sender("$management")
    peer.turn()
    peer.send(transfer(0, b"\x00\x53\x75\xb0\x00\x00\x20\x00" + bytes(8192)))
    assert peer.expect(DETACH).condition == "amqp:link:message-size-exceeded"
    broker.close()
