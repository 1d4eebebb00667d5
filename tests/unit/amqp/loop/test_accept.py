"""Accepting of clients: as many as there may be, and nobody once the broker stops."""

from __future__ import annotations

import socket

import pytest

from broker.errors import OperatorError
from tests.unit.amqp.world import HERE, AmqpWorld


def is_hung_up(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False


def connected(world: AmqpWorld, port: int) -> socket.socket:
    before = world.reactor.accepted_total
    found = socket.create_connection(("127.0.0.1", port))
    found.setblocking(False)
    world.until(
        lambda: world.reactor.accepted_total > before or is_hung_up(found), "the client, or its refusal"
    )
    return found


def test_clients_come_by_a_listening_socket(world: AmqpWorld) -> None:
    port = world.reactor.listen("127.0.0.1", 0, True, HERE)
    with connected(world, port):
        [client] = world.reactor.clients.values()
        assert client.address.startswith("127.0.0.1:")
        assert world.reactor.accepted_total == 1


def test_a_port_that_is_taken_is_the_operators_fault(world: AmqpWorld) -> None:
    port = world.reactor.listen("127.0.0.1", 0, True, HERE)
    with pytest.raises(OperatorError, match=f"127.0.0.1:{port}"):
        world.reactor.listen("127.0.0.1", port, True, HERE)


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_address"])
def test_one_client_too_many_is_hung_up_on_and_counted(limit: str) -> None:
    world = AmqpWorld(limits={limit: 1})
    try:
        port = world.reactor.listen("127.0.0.1", 0, True, HERE)
        with connected(world, port), connected(world, port) as second:
            assert is_hung_up(second)
            assert len(world.reactor.clients) == 1
            assert world.container.quotas.refused[limit] == 1
    finally:
        world.close()


def test_the_oldest_that_is_not_open_makes_room_for_one_more() -> None:
    world = AmqpWorld(limits={"max_handshakes": 2})
    try:
        first, second, third = (world.client() for _ in range(3))
        first.await_end()
        assert world.container.quotas.refused["max_handshakes"] == 1
        second.open(container="second")
        third.open(container="third")
    finally:
        world.close()


def test_nobody_is_adopted_once_the_broker_stops(world: AmqpWorld) -> None:
    world.reactor.stop_listening()
    mine, theirs = socket.socketpair()
    with mine:
        assert not world.reactor.adopt(theirs, "127.0.0.1:1", True, HERE, lambda: None)
        assert mine.recv(1) == b""
