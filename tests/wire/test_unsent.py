"""Links that go while the peer's window keeps some of their messages back, and drains beside them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.frames import (
    DETACH,
    FLOW,
    TRANSFER,
    Frame,
    RawPeer,
    performative,
    transfer,
)
from tests.wire.seeing import await_number

MANY = 1000
SMALL = b"\x00\x53\x77\xa1\x01x"
BODY = b"\x00\x53\x75\xb0" + (60_000).to_bytes(4, "big") + bytes(60_000)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker(policies="policies:\n  - {match: turns, consumers: single_active}\n")


@pytest.fixture
def shut(broker: RunningBroker) -> Iterator[RawPeer]:
    """A peer whose session takes a single transfer."""
    with RawPeer(broker.port) as peer:
        peer.open().begin(window=1)
        yield peer


def fill(broker: RunningBroker, address: str, count: int, body: bytes) -> None:
    with RawPeer(broker.port) as peer:
        peer.open().begin().attach_sender(address)
        peer.await_credit()
        for number in range(count):
            peer.send(transfer(number, payload=body))
        await_number(broker, address, "depth_msgs", count)


def flow(seen: int, window: int, handle: int, credit: int, *, drain: bool = False) -> bytes:
    return performative(FLOW, seen, window, 0, MANY, handle, 0, credit, None, drain)


def gone_with_its_messages(broker: RunningBroker, peer: RawPeer, address: str) -> None:
    """A link that has credit for all, is sent one and goes; what waited for the window goes back."""
    peer.attach_receiver(address, "first", 1)
    peer.send(flow(0, 1, 1, MANY))
    peer.expect(TRANSFER)
    peer.send(performative(DETACH, 1, True))
    peer.expect(DETACH)


def drained(peer: RawPeer, handle: int) -> Frame:
    """The answer to a drain."""
    found = peer.expect(FLOW)
    assert found.field(4) == peer._handles[handle]
    assert (found.field(6), found.field(8)) == (0, True)
    return found


def test_a_drain_is_answered_behind_a_link_that_went(broker: RunningBroker, shut: RawPeer) -> None:
    fill(broker, "orders", 5, SMALL)
    gone_with_its_messages(broker, shut, "orders")
    shut.attach_receiver("quiet", "second", 2)
    shut.send(flow(1, MANY, 2, 7, drain=True))
    assert drained(shut, 2).field(5) == 7, "the credit is used up"


def test_a_drain_is_answered_while_another_link_waits_for_the_window(
    broker: RunningBroker, shut: RawPeer
) -> None:
    fill(broker, "orders", 5, SMALL)
    shut.attach_receiver("orders", "first", 1)
    shut.attach_receiver("quiet", "second", 2)
    shut.send(flow(0, 1, 1, 5))
    shut.expect(TRANSFER)
    shut.send(flow(1, 0, 2, 7, drain=True))
    drained(shut, 2)


def test_what_went_with_its_links_doesnt_starve_the_session(broker: RunningBroker, shut: RawPeer) -> None:
    """More than a session's bytes may be: its next link would be sent nothing for ever."""
    fill(broker, "orders", 40, BODY)
    gone_with_its_messages(broker, shut, "orders")
    shut.attach_receiver("orders", "second", 2)
    shut.send(flow(1, MANY, 2, 40))
    for _ in range(40):
        shut.expect(TRANSFER)


def test_a_drain_of_who_waits_for_its_turn_is_answered(broker: RunningBroker) -> None:
    """Of a queue's consumers one is active; it has no credit, and the messages are not the other's."""
    fill(broker, "turns", 3, SMALL)
    with RawPeer(broker.port) as peer:
        peer.open().begin()
        peer.attach_receiver("turns", "active", 1)
        peer.attach_receiver("turns", "waiting", 2)
        peer.send(flow(0, MANY, 2, 7, drain=True))
        drained(peer, 2)


def test_a_drain_that_takes_the_credit_back_is_answered(broker: RunningBroker, shut: RawPeer) -> None:
    """As go-amqp says it, link-credit 0: what waited for the window can't be sent any more, and is nothing to
    wait for."""
    fill(broker, "orders", 5, SMALL)
    shut.attach_receiver("orders", "first", 1)
    shut.send(flow(0, 1, 1, 5))
    shut.expect(TRANSFER)
    shut.send(performative(FLOW, 1, MANY, 0, MANY, 1, 1, 0, None, True))
    assert drained(shut, 1).field(5) == 1


def test_a_drain_that_crosses_messages_is_answered(broker: RunningBroker) -> None:
    """It takes back credit that was used up before the broker heard of it."""
    fill(broker, "orders", 5, SMALL)
    with RawPeer(broker.port) as peer:
        peer.open().begin()
        peer.attach_receiver("orders", "first", 1)
        peer.send(flow(0, MANY, 1, 5))
        for _ in range(5):
            peer.expect(TRANSFER)
        peer.send(performative(FLOW, 2, MANY, 0, MANY, 1, 2, 0, None, True))
        assert drained(peer, 1).field(5) == 5
