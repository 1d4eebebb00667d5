"""A container-id that one connection has to itself, and many sessions of one connection.

AMQP Enforcing Connection Uniqueness 1.0: `sole-connection-for-container`, as JMS clients desire it.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    OPEN,
    RECEIVER,
    SOURCE,
    TARGET,
    Described,
    Frame,
    RawPeer,
    Symbol,
    Symbols,
    UByte,
    encode,
    performative,
    transfer,
)

pytestmark = pytest.mark.wire
SOLE = Symbol("sole-connection-for-container")


def opened(
    port: int, container: str, *, asks: bool = True, policy: int | None = None
) -> tuple[RawPeer, Frame]:
    """A connection, and how its open was answered."""
    peer = RawPeer(port).authenticate()
    desired = Symbols([SOLE]) if asks else None
    said = [container, None, 65_536, 100, None, None, None, None, desired]
    fields = b"".join(encode(each) for each in said)
    count = len(said)
    if policy is not None:
        item = encode(Symbol("sole-connection-enforcement-policy")) + b"\x52" + bytes((policy,))
        fields += b"\xd1" + struct.pack(">II", len(item) + 4, 2) + item
        count += 1
    body = b"\x00\x53\x10\xd0" + struct.pack(">II", len(fields) + 4, count) + fields
    peer.send(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body)
    assert peer.read_bytes(8) == AMQP_HEADER
    return peer, peer.expect(OPEN)


def properties(answer: Frame) -> dict[str, Any]:
    found: Any = answer.field(9)
    return {str(key): value for key, value in found.items()}


def offers(answer: Frame) -> bool:
    offered: Any = answer.field(7)
    return str(SOLE) in [str(each) for each in offered.elements]


def check_refused(peer: RawPeer, answer: Frame) -> None:
    """Its open says that it fails, its close which field is to blame; Qpid JMS: InvalidClientIDException."""
    assert properties(answer)["amqp:connection-establishment-failed"] is True
    found = peer.expect(CLOSE)
    info: Any = found.error[2]
    assert found.condition == "amqp:invalid-field"
    assert {str(key): str(value) for key, value in info.items()} == {"invalid-field": "container-id"}
    peer.close()


def works(peer: RawPeer) -> bool:
    peer.begin().attach_sender("orders")
    peer.await_credit()
    peer.send(transfer(0))
    return peer.expect(0x15).field(1) == 0


@pytest.mark.parametrize("second_asks", [True, False])
def test_a_second_connection_of_the_container_is_refused(broker: RunningBroker, second_asks: bool) -> None:
    first, answer = opened(broker.port, "client-1")
    assert offers(answer)
    assert "amqp:connection-establishment-failed" not in properties(answer)
    check_refused(*opened(broker.port, "client-1", asks=second_asks))
    check_refused(*opened(broker.port, "client-1", asks=second_asks))
    another, _ = opened(broker.port, "client-2")
    assert works(first)
    assert works(another)
    first.close()
    another.close()


@pytest.mark.parametrize("first_asks", [True, False])
def test_without_a_container_id_or_the_first_ones_wish_nobody_is_refused(
    broker: RunningBroker, first_asks: bool
) -> None:
    container = "" if first_asks else "replicas"
    first, answer = opened(broker.port, container, asks=first_asks)
    assert offers(answer) is first_asks
    second, _ = opened(broker.port, container)
    assert works(first)
    assert works(second)
    first.close()
    second.close()


def test_the_second_may_close_the_first(broker: RunningBroker) -> None:
    first, _ = opened(broker.port, "client")
    second, _ = opened(broker.port, "client", policy=1)
    found = first.expect(CLOSE)
    info: Any = found.error[2]
    assert found.condition == "amqp:resource-locked"
    assert {str(key): value for key, value in info.items()} == {"sole-connection-enforcement": True}
    assert works(second)
    # From now on the second has the name.
    check_refused(*opened(broker.port, "client"))
    first.close()
    second.close()


@pytest.mark.parametrize("how", ["close", "hang up", "reset", "half closed, unread"])
def test_who_lost_its_connection_gets_in_again(broker: RunningBroker, how: str) -> None:
    first, _ = opened(broker.port, "client")
    assert works(first)
    if how == "close":
        first.send(performative(CLOSE))
    elif how == "reset":
        assert isinstance(first.socket, socket.socket)
        first.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.close()
    elif how == "hang up":
        first.close()
    else:
        first.socket.shutdown(socket.SHUT_WR)
    second, answer = opened(broker.port, "client")
    assert "amqp:connection-establishment-failed" not in properties(answer)
    assert works(second)
    check_refused(*opened(broker.port, "client"))
    first.close()
    second.close()


def test_a_client_that_fell_silent_keeps_its_name_for_the_idle_timeout(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {idle_timeout: 2s}\n")
    first, _ = opened(broker.port, "client")
    check_refused(*opened(broker.port, "client"))

    def is_let_in() -> bool:
        peer, answer = opened(broker.port, "client")
        peer.close()
        return "amqp:connection-establishment-failed" not in properties(answer)

    wait_until(is_let_in, 30, "the silent connection to be cut off")
    first.close()


def test_a_second_durable_subscriber_leaves_the_first_alone(broker: RunningBroker) -> None:
    first, _ = opened(broker.port, "client")
    source = Described(SOURCE, ["news", 1, Symbol("never")])
    attach = performative(ATTACH, "sub", 0, RECEIVER, UByte(2), UByte(0), source, Described(TARGET))
    first.begin().send(attach)
    first.expect(ATTACH)
    check_refused(*opened(broker.port, "client", asks=False))
    assert not [frame for frame in first.log if frame.code == DETACH]
    first.close()


# --- sessions


def test_a_thousand_sessions_work_side_by_side(broker: RunningBroker) -> None:
    with RawPeer(broker.port).authenticate() as peer:
        peer.send(performative(OPEN, "many", None, 65_536))
        assert peer.read_bytes(8) == AMQP_HEADER
        peer.expect(OPEN)
        for channel in range(1024):
            peer.begin(channel=channel)
        assert len({frame.channel for frame in peer.log if frame.code == BEGIN}) == 1024
        for handle, channel in enumerate((0, 255, 256, 1023)):
            peer.attach_sender("orders", f"out{channel}", handle, channel=channel)
            peer.await_credit(handle)
            peer.send(transfer(0, handle=handle, channel=channel))
            assert peer.expect(0x15).field(1) == 0
            # A breach is the session's alone, there too.
            peer.send(transfer(7, handle=handle, channel=channel))
            assert peer.expect(0x17).condition == "amqp:invalid-field"
