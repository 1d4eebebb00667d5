"""Sockets of clients to their end: they hear our last word, and leave nothing behind."""

from __future__ import annotations

import socket

from broker.amqp.loop.sockets import LINGER_NS, ClientSocket
from tests.unit.amqp.world import HERE, AmqpWorld, TurningStream
from tests.wire.frames import CLOSE, RawPeer, Symbol

PRODUCT: dict[Symbol, object] = {Symbol("product"): "test"}


def the_only(world: AmqpWorld) -> ClientSocket:
    [client] = world.reactor.clients.values()
    return client


def test_a_client_hears_the_close_before_its_socket_goes(world: AmqpWorld) -> None:
    client = world.begun()
    client_socket = the_only(world)
    world.connection().close("amqp:connection:forced", "go")
    assert client.expect(CLOSE).condition == "amqp:connection:forced"
    client.send(b"")
    client.await_end()
    assert client_socket.ending
    assert not client_socket.closed
    client.close()
    world.until(lambda: client_socket.closed, "the end of the socket")


def test_a_client_that_stays_is_cut_off_after_a_moment(world: AmqpWorld) -> None:
    client = world.begun()
    client_socket = the_only(world)
    world.reactor._sockets.linger(client_socket)
    assert not world.registry.peers
    world.container.timers.run(world.engine.turn.now_ns + 2 * LINGER_NS)
    assert client_socket.closed
    client.await_end()


def test_a_closed_socket_leaves_no_timer_and_frees_its_place(world: AmqpWorld) -> None:
    world.begun()
    client_socket = the_only(world)
    called: list[int] = []
    world.reactor._sockets.at(world.engine.turn.now_ns, client_socket, "test", called.append)
    world.reactor._sockets.close(client_socket)
    world.container.timers.run(world.engine.turn.now_ns + 1)
    assert called == []
    assert not world.reactor.clients
    assert not world.reactor._sockets.handshaking


def test_a_timer_takes_the_place_of_one_for_the_same_reason(world: AmqpWorld) -> None:
    world.begun()
    called: list[str] = []
    sockets, client_socket = world.reactor._sockets, the_only(world)
    sockets.at(world.engine.turn.now_ns, client_socket, "test", lambda _: called.append("first"))
    sockets.at(world.engine.turn.now_ns, client_socket, "test", lambda _: called.append("second"))
    world.container.timers.run(world.engine.turn.now_ns + 1)
    assert called == ["second"]


def closes_at_shutdown(world: AmqpWorld, client: RawPeer) -> list[str | None]:
    client.begin()
    world.reactor.close_peers("amqp:connection:forced", "the broker is shutting down")
    world.turn(2)
    client.send(b"")
    client.await_end()
    return [frame.condition for frame in client.log if frame.code == CLOSE]


def test_a_client_that_says_what_it_is_hears_of_the_shutdown(world: AmqpWorld) -> None:
    assert closes_at_shutdown(world, world.client().open(properties=PRODUCT)) == ["amqp:connection:forced"]


def test_one_that_may_be_protons_for_python_is_only_cut_off(world: AmqpWorld) -> None:
    """After a close it would read no more, and come back at its idle timeout only."""
    port = world.reactor.listen("127.0.0.1", 0, True, HERE)
    stream = TurningStream(world, socket.create_connection(("127.0.0.1", port)))
    with RawPeer(port, stream) as client:
        assert closes_at_shutdown(world, client.open()) == []
