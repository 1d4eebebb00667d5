"""Input of clients: weighed against what it brings, read on in later turns, ended alone when it fails."""

from __future__ import annotations

import pytest

from broker.amqp.loop.control_quota import BURST
from broker.amqp.loop.sockets import ClientSocket
from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import CLOSE, DISPOSITION, FLOW, RawPeer, performative, transfer


def of(world: AmqpWorld, client: RawPeer) -> ClientSocket:
    """The broker's side of the only client."""
    [found] = world.reactor.clients.values()
    return found


def test_flow_frames_without_number_are_left_to_the_quota(world: AmqpWorld) -> None:
    client = world.begun()
    socket = of(world, client)
    flows = performative(FLOW, 0, 100, 0, 100) * 1000
    for _ in range(20):
        client.send(flows)
    world.until(lambda: socket.cost.units > BURST // 4, "the cost")
    assert socket.cost.units > 0
    assert not socket.has_moved()
    assert socket.aside


def test_a_client_that_moves_messages_is_served_with_everybody_else(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender("orders")
    client.await_credit()
    client.send(*(transfer(number) for number in range(5)))
    client.expect(DISPOSITION)
    socket = of(world, client)
    client.send(transfer(5))
    world.until(lambda: not socket.aside, "a message")
    assert socket.has_moved()


def test_more_than_one_turn_should_do_is_handled_in_the_next(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender("orders")
    client.await_credit()
    client.send(b"".join(performative(FLOW, 0, 100, 0, 100) for _ in range(3000)) + transfer(0))
    world.until(lambda: world.engine.topology.nodes["orders"].queue.ready, "the message behind many frames")


def test_a_frame_that_is_none_closes_its_connection(world: AmqpWorld) -> None:
    client = world.begun()
    client.send(b"\x00\x00\x00\x08\x02\x07\x00\x00" + b"\xff" * 8)
    assert client.expect(CLOSE).condition is not None
    world.until(lambda: not world.registry.peers, "the end of the connection")


def test_a_bug_in_the_input_of_one_client_harms_no_other(
    world: AmqpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = world.begun("first"), world.begun("second")
    broken = world.connection("first").wire

    def fails(client: ClientSocket, peer: object, now_ns: int) -> None:
        if peer is broken.owner:
            raise ZeroDivisionError
        read(client, peer, now_ns)  # type: ignore[arg-type]

    read = world.reactor._input._read
    monkeypatch.setattr(world.reactor._input, "_read", fails)
    first.send(performative(FLOW, 0, 100, 0, 100))
    assert first.expect(CLOSE).condition == "amqp:internal-error"
    second.attach_sender("orders")
    assert second.await_credit() > 0
