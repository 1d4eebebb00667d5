"""Operators purge, move and hold."""

from __future__ import annotations

import pytest

from broker.engine.node import Node
from tests.unit.engine.parts_world import Link, PartsWorld, Window


def test_a_purge_takes_what_is_ready_and_leaves_what_a_consumer_holds() -> None:
    world = PartsWorld()
    node = world.create()
    window = world.consumer(node, 2)
    for _ in range(5):
        world.put(node)
    world.turn()
    assert world.engine.actions.purge(node) == 3
    assert (node.gate.depth_msgs, node.dropped, len(window.got)) == (2, 3, 2)


def test_a_move_goes_on_as_the_target_has_room() -> None:
    world = PartsWorld()
    source, target = world.create("a"), world.create("b", flow_stop_count=3, flow_resume_count=3)
    for body in "vwxyz":
        world.put(source, body)
    assert world.engine.actions.move(source, target, 100) == 5
    world.turn()
    assert target.gate.depth_msgs == 3
    assert len(world.engine.moves) == 1
    world.engine.actions.purge(target)
    world.turn()
    assert (source.gate.depth_msgs, target.gate.depth_msgs, world.engine.moves) == (0, 2, [])


def test_a_move_of_nothing_is_none() -> None:
    world = PartsWorld()
    assert world.engine.actions.move(world.create("a"), world.create("b"), 10) == 0
    assert world.engine.moves == []


def test_a_held_node_takes_its_credit_back_until_it_is_let_go() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=10)
    link = Link()
    world.engine.producers.open(node, link, True)
    world.turn()
    assert link.credit == 10
    world.engine.actions.hold(node, True)
    world.turn()
    assert link.credit == 0
    world.engine.actions.hold(node, False)
    world.turn()
    assert link.credit == 10


def drained(world: PartsWorld, target: Node) -> None:
    """Empty a move's target again and again, so that all that it holds passes."""
    for _ in range(1100):
        world.engine.actions.purge(target)
        world.turn()


def test_a_move_takes_nothing_that_came_after_it() -> None:
    world = PartsWorld()
    source, target = world.create("a"), world.create("b", flow_stop_count=1, flow_resume_count=1)
    for _ in range(2000):
        world.put(source)
    assert world.engine.actions.move(source, target, 2000) == 2000
    world.turn()
    assert world.engine.actions.purge(source) == 1000
    world.put(source, "new")
    drained(world, target)
    assert (source.gate.depth_msgs, world.engine.moves, source.consumers) == (1, [], [])


def test_a_move_ends_where_others_take_what_it_came_for() -> None:
    world = PartsWorld()
    source, target = world.create("a"), world.create("b")
    for body in "xyz":
        world.put(source, body)
    world.engine.actions.move(source, target, 3)
    assert world.engine.actions.purge(source) == 3
    for body in "new":
        world.put(source, body)
    world.turn()
    assert (source.gate.depth_msgs, target.gate.depth_msgs, world.engine.moves) == (3, 0, [])


@pytest.mark.parametrize("groups", ["none", "sticky"])
def test_a_move_goes_on_beside_a_single_active_consumer(groups: str) -> None:
    world = PartsWorld()
    source = world.create("a", consumers="single_active", message_groups=groups)
    target = world.create("b")
    idle = world.consumer(source, 0)
    for body in "xyz":
        world.put(source, body)
    assert world.engine.actions.move(source, target, 2) == 2
    world.turn()
    assert (source.gate.depth_msgs, target.gate.depth_msgs, world.engine.moves) == (1, 2, [])
    idle.most = 1
    world.engine.turn.mark_dirty(source)
    world.turn()
    assert len(idle.got) == 1


@pytest.mark.parametrize("groups", ["none", "sticky"])
def test_a_consumer_that_comes_after_a_move_is_the_single_active_one(groups: str) -> None:
    world = PartsWorld()
    source = world.create("a", consumers="single_active", message_groups=groups)
    target = world.create("b", flow_stop_count=1, flow_resume_count=1)
    for _ in range(1003):
        world.put(source)
    world.engine.actions.move(source, target, 1003)
    world.turn()
    active, waiting = world.consumer(source), Window()
    waiting.priority = 5
    world.engine.delivery.add_consumer(source, waiting)
    world.put(source)
    world.turn()
    # The move holds a window full and one has passed.
    assert (len(active.got), len(waiting.got)) == (3, 0)
    assert source.active_consumer() is active
