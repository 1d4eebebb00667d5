"""What is bound to what decides whose credit needs room where."""

from __future__ import annotations

import pytest

from broker.errors import NotFoundError
from tests.unit.engine.parts_world import Link, PartsWorld


def test_nodes_are_found_by_name_and_subscriptions_are_no_nodes() -> None:
    world = PartsWorld()
    topic = world.create("news", kind="topic")
    part = world.subscribe(topic, "a")
    topology = world.engine.topology
    assert topology.node("news") is topic
    assert topology.has("news/a")
    assert not topology.has("news/b")
    with pytest.raises(NotFoundError, match="news/a"):
        topology.node("news/a")
    assert list(topology.every_node()) == [topic, part]


def test_a_publisher_s_credit_is_bounded_by_every_binding_and_freed_when_it_ends() -> None:
    world = PartsWorld()
    topic = world.create("news", kind="topic", enforce_flow="always")
    wide = world.subscribe(topic, "wide", flow_stop_count=50)
    tight = world.subscribe(topic, "tight", flow_stop_count=5)
    link = Link()
    world.engine.producers.open(topic, link, True)
    world.turn()
    assert link.credit == 5
    assert (wide.gate.promised_msgs, tight.gate.promised_msgs) == (5, 5)
    world.engine.topology.unbind(topic, tight)
    world.turn()
    assert tight.gate.promised_msgs == 0
    assert 5 <= wide.gate.promised_msgs <= 50


def test_the_broker_s_switch_opens_every_gate_and_closes_it_again() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=1, flow_resume_count=1)
    world.put(node)
    world.turn()
    assert node.gate.closed
    world.engine.topology.switch_flow(False)
    assert not node.gate.closed
    world.engine.topology.switch_flow(True)
    world.turn()
    assert node.gate.closed


def test_a_store_that_can_t_write_closes_the_disk_for_durable_nodes_alone() -> None:
    world = PartsWorld()
    kept, light = world.create("kept", durable=True), world.create("light")
    links = [Link(), Link()]
    world.engine.topology.hold_disk(True)
    for node, link in zip((kept, light), links, strict=True):
        world.engine.producers.open(node, link, True)
    world.turn()
    assert links[0].credit == 0
    assert links[1].credit > 0
    world.engine.topology.hold_disk(False)
    world.turn()
    assert links[0].credit > 0
    assert world.told == [("stopped", ""), ("opened", "")]
