"""Every message is counted at its node and in the budgets, and is gone from both when it leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker import constants
from broker.engine.changes import Changes
from broker.engine.depths import Depths
from broker.engine.node import Node
from broker.engine.turn import Turn
from tests.unit.engine.parts_world import PartsWorld


def counts(depths: Depths) -> list[tuple[int, int]]:
    return [(gate.depth_msgs, gate.depth_bytes) for gate in (depths.memory, depths.disk, depths.temp)]


@given(st.lists(st.integers(0, 100_000), max_size=20))
def test_what_enters_and_leaves_leaves_nothing_behind(sizes: list[int]) -> None:
    turn = Turn()
    depths, node = Depths(turn, Changes(turn)), Node("a", "queue")
    for size in sizes:
        depths.restore(node, size)
    assert (node.gate.depth_msgs, node.gate.depth_bytes) == (len(sizes), sum(sizes))
    held = sum(sizes) + constants.HELD_BYTES * len(sizes)
    assert counts(depths) == [(len(sizes), held), (len(sizes), sum(sizes)), (0, 0)]
    for size in sizes:
        depths.leave(node, size)
        depths.count_kept(node, -1, -size)
    assert counts(depths) == [(0, 0)] * 3
    assert (node.gate.depth_msgs, node.gate.depth_bytes, node.stored_msgs, node.kept_bytes) == (0, 0, 0, 0)


def test_a_deleted_node_gives_back_all_it_had() -> None:
    world = PartsWorld()
    node = world.create(durable=True)
    for _ in range(5):
        world.put(node, durable=True)
    world.settle()
    assert counts(world.engine.depths)[0][0] == counts(world.engine.depths)[1][0] == 5
    world.engine.lifecycle.delete("orders")
    assert counts(world.engine.depths) == [(0, 0)] * 3


def test_what_is_kept_aside_counts_against_the_disk_alone() -> None:
    turn = Turn()
    depths = Depths(turn, Changes(turn))
    depths.count_disk(3, 300)
    assert counts(depths) == [(0, 0), (3, 300), (0, 0)]
