"""Who is told of gates and links, and what it does to credit."""

from __future__ import annotations

from broker.engine.changes import Changes
from broker.engine.node import Node
from broker.engine.turn import Turn
from tests.unit.engine.parts_world import PartsWorld


def test_a_node_whose_links_changed_is_noted_once_until_it_is_taken() -> None:
    changes, node = Changes(Turn()), Node("a", "queue")
    changes.links_changed(node)
    assert changes.take_nodes() == [], "nobody watches"
    rung: list[int] = []
    changes.watch = lambda: rung.append(1)
    changes.links_changed(node)
    changes.links_changed(node)
    assert (rung, changes.take_nodes()) == ([1], [node])
    changes.links_changed(node)
    assert (rung, changes.take_nodes()) == ([1, 1], [node])


def test_an_operator_s_hold_closes_the_gate_and_lets_it_open_again() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=10)
    world.engine.changes.hold(node, True)
    world.turn()
    assert world.gates == [("orders", True)]
    world.engine.changes.hold(node, False)
    assert world.gates == [("orders", True), ("orders", False)]


def test_a_budget_that_closes_and_opens_is_told_by_its_name() -> None:
    world = PartsWorld()
    fields: list[object] = []
    world.engine.changes.emit = lambda kind, node, told: fields.append((kind, dict(told)))
    world.engine.limit(1 << 20, 0)
    node = world.create(flow_control=False)
    while not world.engine.depths.memory.closed:
        world.put(node, "x" * 10_000)
        world.turn()
    world.engine.actions.purge(node)
    world.turn()
    assert fields == [
        ("stopped", {"budget": "memory_limit"}),
        ("opened", {"budget": "memory_limit"}),
    ]
