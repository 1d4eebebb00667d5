"""The loop: how long it may sleep, functions of other threads, timers, and its end."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.unit.amqp.world import HERE, SECOND_NS, AmqpWorld


def test_the_loop_sleeps_for_ever_where_nothing_is_to_come(world: AmqpWorld) -> None:
    world.turn()
    assert world.reactor._timeout() == -1.0


def test_the_loop_sleeps_until_the_next_timer(world: AmqpWorld) -> None:
    world.turn()
    world.reactor.at(world.engine.turn.now_ns + 5 * SECOND_NS, lambda _: None)
    assert 4.0 < world.reactor._timeout() <= 5.0


@pytest.mark.parametrize("what", ["half_read", "to_flush", "turns"])
def test_the_loop_does_not_sleep_while_something_is_to_do(world: AmqpWorld, what: str) -> None:
    world.begun()
    wire = world.connection().wire
    if what == "half_read":
        world.reactor._sockets.half_read[next(iter(world.reactor.clients.values()))] = None
    else:
        getattr(world.container, what).append(wire)
    assert world.reactor._timeout() == 0.0


def test_timers_are_called_in_the_turn_that_they_are_due(world: AmqpWorld) -> None:
    called: list[str] = []
    world.reactor.at(1, lambda _: called.append("due"))
    world.reactor.at(1 << 62, lambda _: called.append("later"))
    world.turn()
    assert called == ["due"]


def test_another_thread_stops_the_loop_and_every_socket_is_closed(world: AmqpWorld) -> None:
    mine, theirs = socket.socketpair()
    world.reactor.adopt(theirs, "127.0.0.1:1", True, HERE, lambda: None)
    thread = threading.Thread(target=lambda: world.reactor.post(world.reactor.stop))
    thread.start()
    world.reactor.run()
    thread.join()
    with mine:
        assert mine.recv(1) == b""
    assert not world.reactor.clients
    assert world.reactor.epoll.closed


def test_the_longest_turn_is_told_once(world: AmqpWorld) -> None:
    world.turn()
    assert world.reactor.take_longest_turn() > 0
    assert world.reactor.take_longest_turn() == 0
