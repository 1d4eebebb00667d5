"""Settings take effect at nodes that are at work."""

from __future__ import annotations

from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.node import Node
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
