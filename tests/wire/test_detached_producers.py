"""A producer that the broker has detached goes on sending for a while: its connection lives, its session too.

Transfers that arrive behind such a detach use up the session's window. The flow that renews it has to be the
session's own: one that names the link the broker has let go of ends the whole connection at most clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proton import Message
from proton.utils import LinkDetached

from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.frames import (
    ATTACH,
    BODY,
    DETACH,
    FLOW,
    SENDER,
    SOURCE,
    TARGET,
    Described,
    RawPeer,
    UByte,
    performative,
    transfer,
)
from tests.wire.seeing import await_number, number_of
from tests.wire.terminus import connected
from tests.wire.tlsworld import Pki
from tests.wire.tlsworld import connected as secured

pytestmark = pytest.mark.wire

SMALL = "limits: {max_message_size: 1 MB}\n"
# Twice the session's window: whoever isn't told of more room can't send as many.
FRAMES = 4500


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki.at(tmp_path / "certs")


@pytest.fixture
def broker(start_broker: StartBroker, pki: Pki) -> RunningBroker:
    return start_broker(config=SMALL + pki.section(), args=("--listen", "amqps://127.0.0.1:0"))


@pytest.fixture(params=["plain", "tls"])
def peer(request: pytest.FixtureRequest, broker: RunningBroker, pki: Pki) -> Iterator[RawPeer]:
    stream = secured(broker, pki.context()) if request.param == "tls" else None
    with RawPeer(broker.port, stream) as made:
        yield made.open().begin()


def go_on_sending(peer: RawPeer, made: Callable[[int], bytes], sent: int = 0) -> None:
    """Send as a client does that hasn't heard of the detach: within the session's window."""
    for number in range(sent, FRAMES):
        while number >= peer.window_end:
            peer.expect(FLOW)
        peer.send(made(number))


def check_flows(peer: RawPeer) -> None:
    """No flow names a handle that the broker hasn't attached; one at least names none."""
    attached = {frame.field(1) for frame in peer.log if frame.code == ATTACH}
    named = [frame.field(4) for frame in peer.log if frame.code == FLOW]
    assert set(named) <= attached | {None}
    detached = next(place for place, frame in enumerate(peer.log) if frame.code == DETACH)
    bare = [frame for frame in peer.log[detached:] if frame.code == FLOW and frame.field(4) is None]
    assert bare
    assert all(frame.fields[4:] == [] for frame in bare)


def is_usable(peer: RawPeer, broker: RunningBroker, first: int) -> None:
    """Another link of the session takes messages."""
    peer.attach_sender("others", "another", 5)
    peer.await_credit(5)
    peer.send(transfer(first, BODY, handle=5))
    await_number(broker, "others", "received", 1)


def test_the_rest_of_a_message_that_was_too_large(broker: RunningBroker, peer: RawPeer) -> None:
    peer.attach_sender("orders")
    peer.await_credit()
    go_on_sending(peer, lambda number: transfer(0, bytes(1000), more=number < FRAMES - 1))
    assert (
        next(item for item in peer.log if item.code == DETACH).condition == "amqp:link:message-size-exceeded"
    )
    check_flows(peer)
    is_usable(peer, broker, 1)
    assert number_of(broker, "orders", "received") == 0


def test_messages_behind_one_that_was_too_large(broker: RunningBroker, peer: RawPeer) -> None:
    """Each of them is answered, which is when Proton would say the session's window as well."""
    peer.attach_sender("orders")
    peer.await_credit()
    for number in range(20):
        peer.send(transfer(0, bytes(60_000), more=number < 19))
    go_on_sending(peer, lambda number: transfer(number - 19, bytes(100)), 20)
    check_flows(peer)


def test_messages_on_a_link_that_was_refused(broker: RunningBroker, peer: RawPeer) -> None:
    termini = Described(SOURCE), Described(TARGET, ["a.*"])
    peer.send(performative(ATTACH, "out", 0, SENDER, UByte(2), UByte(0), *termini, None, None, 0))
    go_on_sending(peer, lambda number: transfer(number, BODY))
    assert next(item for item in peer.log if item.code == DETACH).condition
    check_flows(peer)
    is_usable(peer, broker, FRAMES)


def test_a_session_that_is_asked_for_its_state_meanwhile(broker: RunningBroker, peer: RawPeer) -> None:
    peer.attach_sender("orders")
    peer.await_credit()
    for number in range(20):
        peer.send(transfer(0, bytes(60_000), more=number < 19))
    peer.expect(DETACH)
    ask = performative(FLOW, 0, 10_000, 0, 10_000, None, None, None, None, None, True)
    # In one piece, so that the answers to both leave together.
    peer.send(b"".join(transfer(number, BODY) for number in range(1, 50)) + ask)
    peer.expect(FLOW)
    check_flows(peer)


def test_a_consumer_of_the_session_gets_its_messages_whole(broker: RunningBroker, peer: RawPeer) -> None:
    """Output that is looked through arrives as it was, however it is cut."""
    peer.attach_sender("orders")
    peer.await_credit()
    for number in range(20):
        peer.send(transfer(0, bytes(60_000), more=number < 19))
    peer.expect(DETACH)
    with connected(broker.url) as other:
        sender = other.create_sender("large")
        body = bytes(range(250)) * 3000
        sender.send(Message(body=body))
        peer.attach_receiver("large", "in", 3)
        peer.give_credit(10, 3)
        got = b""
        while len(got) < len(body):
            got += peer.expect(0x14).payload
        assert body in got


@pytest.mark.parametrize("size", [70 << 20, 200 << 20])
def test_a_proton_client_loses_its_link_and_no_more(start_broker: StartBroker, size: int) -> None:
    broker = start_broker(config=SMALL if size < 100 << 20 else "")
    with connected(broker.url) as connection:
        sender = connection.create_sender("orders")
        with pytest.raises(LinkDetached, match="message-size-exceeded"):
            sender.send(Message(body=bytes(size)), timeout=120)
        other = connection.create_sender("others")
        other.send(Message(body="goes on"))
    assert number_of(broker, "others", "received") == 1
