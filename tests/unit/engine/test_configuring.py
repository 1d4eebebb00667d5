"""Settings take effect at nodes that are at work."""

from __future__ import annotations

from proton import Message

from broker.codec import message
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.node import Node
from broker.queues.duplicates import Duplicates
from tests.unit.engine.parts_world import MS, Link, PartsWorld


def change(world: PartsWorld, node: Node, **given: object) -> None:
    world.engine.configurator.change(node, resolve(given, BrokerDefaults()))
    world.turn()


def test_a_lower_threshold_takes_credit_back_and_a_higher_one_grants_more() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=100)
    link = Link()
    world.engine.producers.open(node, link, True)
    world.turn()
    assert link.credit == 100
    change(world, node, flow_stop_count=10)
    assert (link.credit, node.gate.promised_msgs) == (10, 10)
    world.turn(1_000)
    change(world, node, flow_stop_count=50)
    world.turn(1_000)
    assert node.gate.promised_msgs <= 50
    assert node.gate.stop_msgs == 50


def test_a_window_of_duplicates_comes_and_goes() -> None:
    world = PartsWorld()
    node = world.create()
    assert (node.duplicates, node.takes_as_is) == (None, True)
    change(world, node, duplicate_window=5)
    assert node.duplicates is not None
    assert not node.takes_as_is
    change(world, node)
    assert node.duplicates is None


def seen_notes(world: PartsWorld) -> list[str]:
    return [key for key in world.store.notes if key.startswith("seen/orders/")]


def test_nothing_stays_noted_of_a_window_that_is_smaller_or_gone() -> None:
    world = PartsWorld()
    node = world.create(durable=True, duplicate_window=5)
    for number in range(8):
        world.put(node, id=f"{number}")
    assert len(seen_notes(world)) == 5
    change(world, node, durable=True, duplicate_window=2)
    assert len(seen_notes(world)) == 2
    again = Duplicates(2, 0)
    again.restore([(int(key.split("/")[2]), world.store.notes[key]) for key in seen_notes(world)])
    assert [
        again.knows(message.message_id(bytes(Message(id=f"{number}").encode())), 0) for number in (5, 6, 7)
    ] == [
        False,
        True,
        True,
    ]
    change(world, node, durable=True)
    assert seen_notes(world) == []


def test_the_time_of_idleness_begins_anew_with_another_limit() -> None:
    world = PartsWorld()
    node = world.create()
    world.turn(500)
    change(world, node, expire_after="1 m")
    assert node in world.engine.topology.fading
    assert node.used_ns == 1_500 * MS
    change(world, node)
    assert node not in world.engine.topology.fading


def test_who_waits_is_let_in_when_the_threshold_goes() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=1)
    world.put(node)
    link = Link()
    world.engine.producers.open(node, link, True)
    world.turn()
    assert link.credit == 0
    change(world, node)
    assert link.credit > 0
