"""Events of a connection, and what its links share: windows, memory, and links that were refused."""

from __future__ import annotations

from tests.unit.amqp.links.test_consumer import fill, link_of, transfers
from tests.unit.amqp.links.test_producer import outcomes
from tests.unit.amqp.live import LiveBroker
from tests.wire.frames import (
    ACCEPTED,
    DETACH,
    FLOW,
    RECEIVER,
    REJECTED,
    SENDER,
    Described,
    performative,
    transfer,
)

DISPOSITION = 0x15


def test_what_comes_behind_a_detach_is_rejected_with_its_error(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    (link,) = peer.io.links
    link.fail("amqp:internal-error", "on purpose")  # type: ignore[union-attr]
    peer.send(transfer(0), transfer(1))
    peer.turn()
    assert {code for _, _, code in outcomes(peer)} == {REJECTED}
    assert broker.node("orders").queue.ready == 0


def test_a_session_that_asks_is_told_its_state(broker: LiveBroker) -> None:
    peer = broker.connect()
    before = len(peer.log)
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, None, None, None, None, False, True))
    peer.turn()
    assert [each.code for each in peer.log[before:]] == [FLOW]


def test_a_sender_that_asks_is_told_its_links_state(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("orders")
    peer.turn()
    before = len(peer.log)
    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, 0, 0, None, None, False, True))
    peer.turn()
    flows = [each for each in peer.log[before:] if each.code == FLOW]
    assert flows
    assert flows[-1].field(6) == peer.may_send()


def test_links_share_the_connections_window() -> None:
    broker = LiveBroker(flags={"flow.connection_flow_limit_enabled": True, "flow.connection_flow_limit": 4})
    fill(broker, 10)
    peer = broker.connect()
    peer.attach_receiver("orders", "one", 1)
    peer.attach_receiver("orders", "two", 2)
    for handle in (1, 2):
        peer.give_credit(10, handle)
    peer.turn()
    peer.turn()
    assert len(transfers(peer)) == 4
    assert peer.io.shared is not None
    peer.send(performative(DISPOSITION, RECEIVER, 0, 1, True, Described(ACCEPTED)))
    peer.turn()
    peer.turn()
    assert len(transfers(peer)) == 6
    broker.close()


def test_links_are_counted_and_named_by_connection(broker: LiveBroker) -> None:
    peer = broker.connect()
    peer.attach_sender("a", "one", 0)
    peer.attach_sender("b", "two", 1)
    peer.turn()
    assert {link.name for link in peer.io.links} == {"one", "two"}
    assert {link.id.partition(".")[0] for link in peer.io.links} == {peer.control.id}
    peer.send(performative(DETACH, 1, True))
    peer.turn()
    assert {link.name for link in peer.io.links} == {"one"}


def test_rates_are_sampled_once_a_second(broker: LiveBroker) -> None:
    fill(broker, 4)
    peer = broker.connect()
    peer.attach_receiver("orders")
    peer.give_credit(4)
    peer.turn()
    peer.send(performative(DISPOSITION, RECEIVER, 0, 3, True, Described(ACCEPTED)))
    peer.turn()
    assert peer.io.sample(broker.engine.turn.now_ns, 2.0) == []
    assert link_of(peer).rate == 2.0


def test_a_word_on_deliveries_that_never_were_changes_nothing(broker: LiveBroker) -> None:
    fill(broker, 1)
    peer = broker.connect()
    peer.attach_receiver("orders")
    peer.turn()
    peer.send(performative(DISPOSITION, RECEIVER, 0, 500, True, Described(ACCEPTED)))
    peer.send(performative(DISPOSITION, SENDER, 7, 9, True))
    peer.turn()
    assert broker.node("orders").queue.ready == 1
