"""Operators purge, move and hold."""

from __future__ import annotations

from tests.unit.engine.parts_world import Link, PartsWorld


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
