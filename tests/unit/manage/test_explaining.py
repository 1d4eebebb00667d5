"""A forecast of a change says what the engine does when the change is made."""

from __future__ import annotations

from itertools import product

import pytest

from broker.engine.node import Node
from tests.unit.manage_world import World

POLICIES = """
policies:
  - match: orders
    max_count: 100
    flow_stop_count: 20
    flow_resume_count: 10
  - match: news
    kind: topic
    flow_stop_count: 20
    flow_resume_count: 10
"""
CHANGES: tuple[dict[str, object], ...] = (
    {"flow_stop_count": 5, "flow_resume_count": 2},
    {"flow_stop_count": 90, "flow_resume_count": 80},
    {"enforce_flow": "with_active_consumers"},
    {"enforce_flow": "with_active_consumers", "flow_stop_count": 5, "flow_resume_count": 2},
    {"enforce_flow": "always"},
    {"flow_control": False},
    {"overflow": "page"},
    {"byte_reservation": "strict"},
    {"pending_message_limit": 50},
)


def receives(world: World, node: Node, how: str) -> None:
    """Nobody, a receiver that has given no credit yet, or one that has and reads nothing more."""
    if how != "nobody":
        consumer = world.consumer(node, credit=0)
        consumer.started = how == "started"
        world.engine.topology.consumers_changed(node)


@pytest.mark.parametrize(
    ("how", "depth", "before", "change"),
    list(product(("nobody", "attached", "started"), (0, 10, 30), (None, "with_active_consumers"), CHANGES)),
)
def test_a_queue_becomes_what_was_foretold(
    how: str, depth: int, before: str | None, change: dict[str, object]
) -> None:
    world = World(POLICIES)
    node = world.queue("orders", **({"enforce_flow": before} if before else {}))
    receives(world, node, how)
    world.put(node, depth)
    foretold = world.model.explanations.effect("orders", change)
    assert foretold.gate_before == node.gate.state
    world.model.nodes.update("orders", change)
    assert (foretold.gate_after, foretold.settings_after["enforce_flow"]) == (
        node.gate.state,
        node.settings.enforce_flow if node.settings else None,
    )


@pytest.mark.parametrize(("how", "change"), list(product(("nobody", "attached", "started"), CHANGES)))
def test_a_bound_queue_becomes_what_was_foretold(how: str, change: dict[str, object]) -> None:
    world = World(POLICIES)
    topic = world.model.nodes.create("topic", "news", {})
    node = world.queue("orders")
    world.engine.topology.bind(topic, node)
    receives(world, node, how)
    world.put(node, 30)
    foretold = world.model.explanations.effect("orders", change)
    world.model.nodes.update("orders", change)
    assert foretold.gate_after == node.gate.state
