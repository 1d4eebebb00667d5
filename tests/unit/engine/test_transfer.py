"""Messages on their way to another node: they wait for its room, and are in their place again if it goes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from broker.engine.node import Node
from broker.engine.transfer import MOVE_STOPPED
from tests.unit.manage_world import FakeConsumer, World

pytestmark = pytest.mark.flow

BODY = b"\x00\x53\x77\xa0\x01x"


def filled(world: World, name: str, count: int, **settings: object) -> Node:
    node = world.queue(name, **settings)
    for _ in range(count):
        world.engine.intake.put(node, BODY, 0)
    world.engine.end_turn()
    return node


def depths(*nodes: Node) -> list[int]:
    return [node.gate.depth_msgs for node in nodes]


def rejected(world: World, node: Node, count: int) -> None:
    """A consumer takes so many messages and rejects each."""
    consumer: FakeConsumer = world.consumer(node, credit=count)
    for entry in consumer.held:
        consumer.in_flight -= 1
        world.engine.settlement.reject(node, entry)
    world.engine.end_turn()


def test_dead_letters_wait_in_their_queue_until_their_target_has_room() -> None:
    world = World()
    letters = filled(world, "letters", 0, flow_stop_count=1)
    orders = filled(world, "orders", 3, dead_letter_address="letters")
    world.engine.letters.find = lambda _: letters
    rejected(world, orders, 3)
    assert depths(orders, letters) == [2, 1]
    assert orders.letters is not None
    assert orders.letters.waiting_msgs() == 2
    consumer = world.consumer(letters)
    for waiting in (1, 0):
        consumer.in_flight -= 1
        world.engine.settlement.acknowledge(letters, consumer.held[-1])
        world.engine.end_turn()
        world.engine.end_turn()
        assert orders.letters.waiting_msgs() == waiting
    assert depths(orders, letters) == [0, 1]


def test_dead_letters_are_handed_out_again_flagged_where_their_target_is_deleted() -> None:
    world = World()
    letters = filled(world, "letters", 1, flow_stop_count=1)
    orders = filled(world, "orders", 1, dead_letter_address="letters")
    world.engine.letters.find = lambda _: letters
    rejected(world, orders, 1)
    assert orders.letters is not None
    orders.letters.close("deleted")
    again = world.consumer(orders, link="r2")
    assert [entry.redelivered for entry in again.held] == [True]


def test_a_move_waits_for_room_and_ends_at_its_count() -> None:
    world = World()
    source, target = filled(world, "source", 5), filled(world, "target", 0, flow_stop_count=2)
    world.engine.actions.move(source, target, 4)
    world.engine.end_turn()
    assert depths(source, target) == [3, 2]
    consumer = world.consumer(target)
    for entry in list(consumer.held):
        consumer.in_flight -= 1
        world.engine.settlement.acknowledge(target, entry)
    world.engine.end_turn()
    world.engine.end_turn()
    assert (depths(source, target), world.engine.moves) == ([1, 2], [])


def test_a_move_ends_at_a_hard_limit_and_says_how_far_it_came() -> None:
    world = World()
    told: list[tuple[str, Mapping[str, object]]] = []
    world.engine.changes.emit = lambda kind, node, fields: told.append((kind, fields))
    source = filled(world, "source", 3)
    target = filled(world, "target", 0, max_count=1, flow_control=False, overflow="reject")
    world.engine.actions.move(source, target, 3)
    world.engine.end_turn()
    assert depths(source, target) == [2, 1]
    assert [(kind, fields["moved"]) for kind, fields in told if kind == MOVE_STOPPED] == [(MOVE_STOPPED, 1)]
    # The rest is in its old place, in order.
    assert [entry.seq for entry in world.consumer(source).held] == [2, 3]
