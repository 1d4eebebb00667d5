"""The times that clients may take: to open, and to take what is written to them."""

from __future__ import annotations

import pytest

from broker.amqp.loop.sockets import ClientSocket
from broker.amqp.loop.timeouts import DRAIN_NS
from tests.unit.amqp.world import SECOND_NS, AmqpWorld
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

HOUR_NS = 3600 * SECOND_NS


def pass_time(world: AmqpWorld, seconds_ns: int) -> None:
    world.turn()
    world.container.timers.run(world.engine.turn.now_ns + seconds_ns)


def test_a_client_that_does_not_open_is_closed_and_counted(world: AmqpWorld) -> None:
    client = world.client().authenticate()
    pass_time(world, HOUR_NS)
    client.await_end()
    assert world.container.quotas.refused["handshake_timeout"] == 1


def test_one_that_has_opened_is_not(world: AmqpWorld) -> None:
    world.begun()
    limit_ns = world.container.settings.limits.handshake_timeout_ms * 1_000_000
    [client] = world.reactor.clients.values()
    assert "open" not in client.timers
    world.container.timers.drop(client.timers["tick"])
    world.container.timers.run(world.engine.turn.now_ns + 2 * limit_ns)
    assert not client.closed
    assert world.container.quotas.refused["handshake_timeout"] == 0


def test_a_silent_client_is_closed_at_its_idle_timeout(world: AmqpWorld) -> None:
    client = world.begun()
    [socket] = world.reactor.clients.values()
    idle_ns = world.container.settings.limits.idle_timeout_ms * 1_000_000
    # Something was heard since it was looked at last: its time begins with the first of these.
    for waits in (1, 11):
        timer = socket.timers["tick"]
        assert timer.function is not None
        timer.function(world.engine.turn.now_ns + waits * idle_ns)
    world.until(lambda: world.container.quotas.refused["idle_timeout"], "the idle timeout")
    client.await_end()


def test_a_token_that_has_expired_ends_its_connection(world: AmqpWorld) -> None:
    client = world.begun()
    [socket] = world.reactor.clients.values()
    socket.until_ns = 1
    timer = socket.timers["tick"]
    assert timer.function is not None
    timer.function(world.engine.turn.now_ns)
    assert client.expect(0x18).condition == "amqp:unauthorized-access"


def fill(world: AmqpWorld, client: RawPeer) -> ClientSocket:
    """Have the client ask for more than its socket holds, and read nothing of it."""
    client.attach_sender("orders")
    client.await_credit()
    client.attach_receiver("orders")
    body = b"\x00\x53\x77\xb0\x00\x00\x80\x00" + b"x" * (1 << 15)
    for number in range(40):
        client.send(transfer(number, body, settled=True))
    client.send(performative(FLOW, 0, 10_000, 40, 10_000, 1, 0, 1000))
    [socket] = world.reactor.clients.values()
    world.until(lambda: socket.armed, "a full socket")
    return socket


def publish_by_relay(world: AmqpWorld, client: RawPeer, address: bytes, number: int) -> None:
    """Send what makes a queue and puts a message into it, and wait for no answer."""
    termini = Described(SOURCE), Described(TARGET, [None])
    to = (
        b"\x00\x53\x73\xc0"
        + bytes((len(address) + 5, 3))
        + b"\x40\x40\xa1"
        + bytes((len(address),))
        + address
    )
    client.send(performative(ATTACH, "late", 5, SENDER, UByte(2), UByte(0), *termini, None, None, 0))
    world.turn(10)
    client.send(transfer(number, to + BODY, handle=5, settled=True))
    world.turn(10)


@pytest.mark.parametrize("ends", ["its token", "an operator"])
def test_a_client_that_reads_nothing_does_nothing_either_once_it_is_closed(
    world: AmqpWorld, ends: str
) -> None:
    client = world.begun()
    socket = fill(world, client)
    publish_by_relay(world, client, b"before", 40)
    assert world.engine.topology.nodes["before"].received == 1
    client.send(performative(DETACH, 5, True))
    world.turn(10)
    if ends == "its token":
        socket.until_ns = 1
        timer = socket.timers["tick"]
        assert timer.function is not None
        timer.function(world.engine.turn.now_ns)
    else:
        world.registry.close(world.connection().id)
    assert socket.peer is not None
    assert socket.peer.wire.parting
    publish_by_relay(world, client, b"behind", 41)
    assert not socket.closed
    assert "behind" not in world.engine.topology.nodes
    pass_time(world, DRAIN_NS + SECOND_NS)
    assert socket.closed


def test_a_client_that_takes_nothing_of_its_output_is_cut_off(world: AmqpWorld) -> None:
    socket = fill(world, world.begun())
    pass_time(world, HOUR_NS)
    assert socket.closed
    assert world.container.quotas.refused["send_timeout"] == 1
