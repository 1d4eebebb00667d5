"""What leaves a node wakes whoever waits for its room."""

from __future__ import annotations

import pytest

from broker.constants import HELD_BYTES
from broker.engine.node import Node
from tests.unit.engine.parts_world import Link, PartsWorld, Window


def filled(world: PartsWorld, node: Node, count: int) -> Window:
    for _ in range(count):
        world.put(node)
    return world.consumer(node)


def test_room_that_came_free_is_dealt_to_the_node_s_producer() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=10, flow_resume_count=10)
    window = filled(world, node, 10)
    link = Link()
    world.engine.producers.open(node, link, True)
    world.turn()
    assert link.credit == 0
    for entry in list(window.got):
        world.engine.settlement.acknowledge(node, entry)
    world.turn()
    assert 0 < link.credit <= 10


def test_room_at_a_subscription_is_dealt_to_its_topic_s_publisher() -> None:
    world = PartsWorld()
    topic = world.create("news", kind="topic")
    part = world.subscribe(topic, "a", flow_stop_count=10, flow_resume_count=10)
    window = filled(world, part, 10)
    link = Link()
    world.engine.producers.open(topic, link, True)
    world.turn()
    assert link.credit == 0
    for entry in list(window.got):
        world.engine.settlement.acknowledge(part, entry)
    world.turn()
    assert 0 < link.credit <= 10


def test_what_is_dropped_is_counted_and_forgotten_by_the_store() -> None:
    world = PartsWorld()
    node = world.create(durable=True, overflow="ring", max_count=2)
    for body in "abc":
        world.put(node, body, durable=True)
    world.settle()
    assert (node.dropped, node.gate.depth_msgs, node.stored_msgs) == (1, 2, 2)


def test_nothing_leaves_a_deleted_node_a_second_time() -> None:
    world = PartsWorld()
    node = world.create()
    window = filled(world, node, 1)
    world.engine.lifecycle.delete("orders")
    world.engine.settlement.acknowledge(node, window.got[0])
    assert world.engine.depths.memory.depth_msgs == 0


@pytest.mark.parametrize("how", ["acknowledged", "purged", "replaced"])
def test_a_message_that_left_before_its_time_takes_no_memory(how: str) -> None:
    world = PartsWorld()
    node = world.create(**({"last_value_key": "k"} if how == "replaced" else {}))
    for _ in range(500):
        world.put(node, "x" * 1000, ttl=60, properties={"k": "same"})
    world.turn()
    if how == "purged":
        world.engine.actions.purge(node)
    elif how == "acknowledged":
        window = world.consumer(node, 500)
        for entry in window.got:
            world.engine.settlement.acknowledge(node, entry)
    assert node.expiry is not None
    held = sum(len(item[3].data) for item in node.expiry._heap)
    assert held <= (2000 if how == "replaced" else 0)
    assert world.engine.depths.memory.depth_bytes == sum(len(entry.data) + HELD_BYTES for entry in node.queue)
