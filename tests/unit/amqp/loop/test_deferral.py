"""Sockets that are left unread: while the quota has no time for newcomers, or while they cost too much."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

import pytest

from broker.amqp.loop.control_quota import MOST_SAVED_NS, ControlQuota
from broker.amqp.loop.deferral import Deferral
from broker.amqp.loop.sockets import ClientSocket
from tests.unit.amqp.world import HERE, AmqpWorld


class Deferring:
    """One newcomer, and a quota whose time a test spends."""

    def __init__(self, world: AmqpWorld) -> None:
        self.now_ns = time.monotonic_ns()
        self.lane = ControlQuota(10, self.now_ns)
        self.sockets = world.reactor._sockets
        self.deferral = Deferral(self.lane, self.sockets, world.reactor.epoll)
        mine, self.theirs = socket.socketpair()
        world.reactor.adopt(mine, "127.0.0.1:1", True, HERE, lambda: None)
        self.client: ClientSocket = next(iter(world.reactor.clients.values()))

    def busy(self) -> None:
        """Messages move, and the quota has nothing left."""
        self.lane.moved_ns = self.now_ns
        self.lane.charge(4 * MOST_SAVED_NS)

    def defers(self, mask: int = select.EPOLLIN) -> bool:
        return self.deferral.defers(self.client, mask, self.now_ns)


@pytest.fixture
def deferring(world: AmqpWorld) -> Iterator[Deferring]:
    found = Deferring(world)
    yield found
    found.theirs.close()


def test_a_newcomer_is_served_while_there_is_time(deferring: Deferring) -> None:
    assert not deferring.defers()


def test_a_newcomer_waits_while_messages_take_the_time(deferring: Deferring) -> None:
    deferring.busy()
    assert deferring.defers()
    assert list(deferring.lane.waiting) == [deferring.client.fd]
    assert deferring.client.deferred


def test_a_newcomer_waits_behind_those_who_wait(deferring: Deferring) -> None:
    deferring.lane.put(999)
    assert deferring.defers()
    assert list(deferring.lane.waiting) == [999, deferring.client.fd]


def test_a_client_that_is_open_never_waits_as_a_newcomer(deferring: Deferring) -> None:
    deferring.sockets.handshaking.clear()
    deferring.busy()
    assert not deferring.defers()


def test_a_hang_up_and_room_for_output_are_handled_at_once(deferring: Deferring) -> None:
    deferring.deferral.defer(deferring.client)
    assert deferring.defers()
    assert not deferring.defers(select.EPOLLIN | select.EPOLLHUP)
    assert not deferring.defers(select.EPOLLOUT)


def test_a_client_that_is_taken_up_is_read_again(world: AmqpWorld, deferring: Deferring) -> None:
    deferring.deferral.defer(deferring.client)
    deferring.theirs.sendall(b"A")
    ready = [fd for fd, _ in world.reactor.epoll.poll(0)]
    assert deferring.client.fd not in ready
    deferring.deferral.take_up(deferring.client)
    ready = [fd for fd, _ in world.reactor.epoll.poll(0)]
    assert deferring.client.fd in ready
