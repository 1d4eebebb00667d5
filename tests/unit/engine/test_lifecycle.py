"""Nodes come, are restored, and go with all they had."""

from __future__ import annotations

import pytest

from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.errors import ConflictError, NotFoundError, OperatorError
from broker.store.port import LARGE, REDELIVERED
from tests.unit.engine.parts_world import EPOCH_MS, Link, PartsWorld


def test_a_name_is_taken_whoever_bears_it() -> None:
    world = PartsWorld()
    topic = world.create("news", kind="topic")
    world.subscribe(topic, "a")
    with pytest.raises(ConflictError, match="news/a"):
        world.create("news/a")
    with pytest.raises(ConflictError, match="news"):
        world.engine.lifecycle.subscribe("news", "news", resolve({}, BrokerDefaults()))


def test_a_queue_never_becomes_a_topic() -> None:
    world = PartsWorld()
    node = world.create()
    with pytest.raises(OperatorError, match="can't become a topic"):
        world.engine.configurator.change(node, resolve({"kind": "topic"}, BrokerDefaults()))


def test_a_deleted_node_refuses_what_was_parked_and_ends_its_bindings() -> None:
    world = PartsWorld()
    topic = world.create("news", kind="topic")
    node = world.create(flow_stop_count=1)
    world.engine.topology.bind(topic, node)
    world.put(node)
    link = Link()
    world.engine.parking.park(node, world.engine.producers.open(node, link, False), "m", 10, False)
    assert world.engine.lifecycle.delete("orders") is node
    assert (link.refused, topic.subscriptions, node.deleted) == (["m"], [], True)
    with pytest.raises(NotFoundError):
        world.engine.topology.node("orders")
    assert world.engine.depths.memory.parked_bytes == 0


def test_restored_messages_keep_order_count_and_flags() -> None:
    world = PartsWorld()
    node = world.create(durable=True, flow_stop_count=2)
    world.engine.lifecycle.restore(
        node,
        [
            (3, 0, 0, 0, b"a"),
            (5, REDELIVERED, 2, 0, b"b"),
            (9, 0, 0, EPOCH_MS + 2_000, b"c"),
        ],
    )
    assert [(entry.seq, entry.delivery_count) for entry in node.queue] == [(3, 0), (5, 2), (9, 0)]
    assert [bool(entry.redelivered) for entry in node.queue] == [False, True, False]
    assert (node.stored_msgs, node.gate.closed, node.queue.next_seq) == (3, True, 10)
    world.turn(1_000)
    assert node.expired == 1, "its deadline came along"


def test_a_large_message_that_lost_its_body_is_sent_to_nobody() -> None:
    world = PartsWorld()
    node = world.create(durable=True)
    world.engine.lifecycle.restore(node, [(1, LARGE, 0, 0, b"head"), (2, 0, 0, 0, b"whole")])
    window = world.consumer(node)
    world.turn()
    assert [entry.seq for entry in window.got] == [2]
    assert (node.dropped, node.gate.depth_msgs) == (1, 1)


def test_a_withdrawn_node_leaves_the_store_as_it_is() -> None:
    world = PartsWorld()
    node = world.create(durable=True)
    world.put(node, durable=True)
    world.settle()
    shelf = node.shelf
    world.engine.lifecycle.withdraw(node)
    assert world.engine.depths.disk.depth_msgs == 0
    assert shelf is not None
    assert not world.engine.topology.has("orders")
