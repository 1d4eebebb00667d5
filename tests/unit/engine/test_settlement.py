"""Each outcome does what the specification says to the message, the counters and the store."""

from __future__ import annotations

import pytest

from broker.engine.node import Node
from tests.unit.engine.parts_world import PartsWorld, Window


@pytest.fixture
def world() -> PartsWorld:
    return PartsWorld()


def delivered(world: PartsWorld, **given: object) -> tuple[Node, Window]:
    node = world.create("orders", **given)
    world.put(node)
    window = world.consumer(node)
    world.turn()
    return node, window


def test_accepted_is_gone(world: PartsWorld) -> None:
    node, window = delivered(world)
    world.engine.settlement.acknowledge(node, window.got[0])
    assert (node.accepted, node.gate.depth_msgs) == (1, 0)


def test_rejected_becomes_a_dead_letter_where_there_is_a_place_for_it(world: PartsWorld) -> None:
    letters = world.create("letters")
    node, window = delivered(world, dead_letter_address="letters")
    world.engine.settlement.reject(node, window.got[0])
    assert (node.rejected, node.dead_lettered, node.gate.depth_msgs, letters.gate.depth_msgs) == (1, 1, 0, 1)


def test_rejected_is_gone_where_there_is_none(world: PartsWorld) -> None:
    node, window = delivered(world)
    world.engine.settlement.reject(node, window.got[0])
    assert (node.rejected, node.dropped, node.gate.depth_msgs) == (1, 0, 0)


@pytest.mark.parametrize("failed", [False, True])
def test_released_is_ready_again_and_counted_only_if_it_failed(world: PartsWorld, failed: bool) -> None:
    node, window = delivered(world)
    entry = window.got.pop()
    world.engine.settlement.requeue(node, entry, failed)
    assert (entry.delivery_count, entry.redelivered, node.gate.depth_msgs) == (int(failed), True, 1)
    world.turn()
    assert window.got == [entry], "it is dispatched again"


def test_the_last_failed_delivery_makes_a_dead_letter(world: PartsWorld) -> None:
    letters = world.create("letters")
    node, window = delivered(world, dead_letter_address="letters", max_delivery_count=2)
    world.engine.settlement.requeue(node, window.got.pop(), True)
    world.turn()
    world.engine.settlement.requeue(node, window.got.pop(), True)
    assert (node.gate.depth_msgs, letters.gate.depth_msgs) == (0, 1)


def test_a_spared_message_reads_one_delivery_and_never_dies_of_it(world: PartsWorld) -> None:
    node, window = delivered(world, max_delivery_count=1)
    for _ in range(3):
        entry = window.got.pop()
        world.engine.settlement.spare(node, entry)
        assert entry.delivery_count == 1
        world.turn()
    assert (node.gate.depth_msgs, node.dropped) == (1, 0)


def test_what_is_put_back_stands_where_it_stood(world: PartsWorld) -> None:
    node = world.create()
    for body in "ab":
        world.put(node, body)
    window = world.consumer(node, 1)
    first = window.got.pop()
    world.engine.settlement.put_back(node, first)
    world.turn()
    assert window.got == [first]
    assert not first.redelivered, "nobody saw it"


def test_what_expired_on_its_way_is_a_dead_letter_in_the_next_turn(world: PartsWorld) -> None:
    node = world.create()
    world.put(node, ttl=0.1)
    window = world.consumer(node)
    world.turn(200)
    world.engine.settlement.put_back(node, window.got[0])
    assert (node.gate.depth_msgs, world.engine.next_deadline()) == (1, 1)
    world.turn()
    assert (node.gate.depth_msgs, node.expired) == (0, 1)
