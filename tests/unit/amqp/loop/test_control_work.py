"""Work that is no message: served in turn, within its time, and no failure of it stops the loop."""

from __future__ import annotations

import pytest

from broker.amqp.loop.control_quota import MOST_SAVED_NS
from tests.unit.amqp.world import AmqpWorld


class Broken:
    """A connection that can't be shut."""

    def shut_some(self) -> bool:
        raise ZeroDivisionError

    def links_are_shut(self) -> None: ...


class Closed:
    """A connection that takes some turns to be shut."""

    def __init__(self, turns: int) -> None:
        self.left = turns
        self.told = False

    def shut_some(self) -> bool:
        self.left -= 1
        return self.left <= 0

    def links_are_shut(self) -> None:
        self.told = True


def test_a_connection_that_is_over_is_shut_slice_by_slice(world: AmqpWorld) -> None:
    closed = Closed(3)
    world.container.parting[closed] = None
    for left in (2, 1, 0):
        world.reactor._control.serve(idle=True)
        assert closed.left == left
    assert closed.told
    assert not world.container.parting


def test_one_that_can_not_be_shut_is_given_up(world: AmqpWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.container.parting[Broken()] = None
    world.reactor._control.serve(idle=True)
    assert not world.container.parting
    assert "could not be shut in order" in caplog.text


def test_requests_and_connections_that_are_over_take_turns(world: AmqpWorld) -> None:
    peer = world.connection() if world.begun() else None
    assert peer is not None
    answered: list[int] = []
    closed = Closed(100)
    world.container.parting[closed] = None
    for number in range(3):
        world.container.requests.manage(peer, b"", lambda number=number: answered.append(number))  # type: ignore[misc]
    before = closed.left
    for _ in range(4):
        world.reactor._control.serve(idle=True)
    assert (answered, before - closed.left) == ([0, 1], 2)


def test_it_waits_while_messages_take_the_time(world: AmqpWorld) -> None:
    closed = Closed(1)
    world.container.parting[closed] = None
    lane = world.container.lane
    lane.moved_ns = 1 << 62
    lane.charge(8 * MOST_SAVED_NS)
    world.reactor._control.serve(idle=False)
    assert closed.left == 1
    assert world.reactor._control.delay_s() == 0.001
    world.reactor._control.serve(idle=True)
    assert closed.left == 0
