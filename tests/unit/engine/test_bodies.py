"""Files of large messages: counted at the node, noted in the store, let go once nothing needs them."""

from __future__ import annotations

from broker.engine.large import Body
from broker.engine.node import Node
from tests.unit.engine.parts_world import PartsWorld

SIZE = 1 << 20


def body_of(world: PartsWorld) -> Body:
    return world.engine.large.embody(7, SIZE, 0, True)


def restored(world: PartsWorld) -> tuple[Node, Body]:
    node = world.create(durable=True)
    body = body_of(world)
    world.engine.bodies.restore(node, 1, body)
    return node, body


def test_a_restored_body_counts_at_its_node_and_not_in_memory() -> None:
    world = PartsWorld()
    node, body = restored(world)
    assert (node.file_bytes, node.gate.depth_bytes, body.kept) == (SIZE, SIZE, 1)
    assert world.engine.depths.memory.depth_bytes == 0


def test_a_body_that_is_let_go_is_kept_until_that_is_on_disk() -> None:
    world = PartsWorld()
    node, body = restored(world)
    world.settle()
    world.engine.bodies.let_go(node, 1)
    assert (node.file_bytes, node.gate.depth_bytes, node.bodies, body.kept) == (0, 0, {}, 0)
    assert world.engine.durability.commit is not None
    assert len(world.engine.durability.commit.waiters) == 1, "its file may go with the group"
    world.settle()
    assert world.engine.durability.commit.waiters == []


def test_an_abandoned_node_leaves_what_the_store_has_noted() -> None:
    world = PartsWorld()
    node, body = restored(world)
    world.engine.bodies.keep_aside(1, 100, [body])
    world.engine.bodies.abandon(node)
    assert (node.bodies, body.kept) == ({}, 1)
    assert world.engine.depths.disk.depth_bytes == 100
    world.engine.bodies.drop_aside(1, 100, [body])
    assert (body.kept, world.engine.depths.disk.depth_bytes) == (0, 0)
