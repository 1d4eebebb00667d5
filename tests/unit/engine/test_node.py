"""A node: whose room its messages take, when its subscriptions count, and the memory it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker import constants
from broker.config.node import HotSettings
from broker.engine.hot import hot_numbers
from broker.engine.node import UNCONFIGURED, Bridge, Node, bridge_name, memory_of
from broker.flow.window import Window
from tests.unit.manage_world import FakeConsumer, World

pytestmark = pytest.mark.flow


def topic_with_a_subscription() -> tuple[Node, Node]:
    topic, subscription = Node("news", "topic"), Node("reader", "subscription", "news")
    topic.subscriptions.append(subscription)
    subscription.topics.append(topic)
    return topic, subscription


def consumer(node: Node, started: bool) -> None:
    made = FakeConsumer(Window(0, 50, None))
    made.started = started
    node.consumers.append(made)


def test_a_node_is_active_while_a_started_consumer_receives_from_it() -> None:
    topic, subscription = topic_with_a_subscription()
    consumer(subscription, started=False)
    assert (topic.is_active(), subscription.is_active()) == (False, False)
    consumer(subscription, started=True)
    assert (topic.is_active(), subscription.is_active()) == (True, True)


def enforced(when: str) -> HotSettings:
    return hot_numbers(HotSettings(replace(UNCONFIGURED, enforce_flow=when)))


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("active", [True, False])
def test_publishers_need_room_at_active_subscriptions_or_at_all(always: bool, active: bool) -> None:
    topic, subscription = topic_with_a_subscription()
    consumer(subscription, started=active)
    topic.hot = enforced("always" if always else "with_active_consumers")
    assert topic.heeds(subscription) is (always or active)
    subscription.never_blocks_publishers = True
    assert not topic.heeds(subscription)


def test_publishers_need_room_at_a_bound_queue_whoever_receives() -> None:
    topic, queue = Node("news", "topic"), Node("orders", "queue")
    topic.hot = enforced("with_active_consumers")
    assert topic.heeds(queue)
    topic.reserves_at_subscriptions = False
    assert not topic.heeds(queue)


def test_a_subscription_s_room_is_its_topics_a_queue_s_its_own_too() -> None:
    topic, subscription = topic_with_a_subscription()
    source, queue = Node("source", "queue"), Node("orders", "queue")
    queue.topics.append(topic)
    for node in (subscription, queue):
        node.bridge_sources.append(source)
    assert subscription.owners() == [topic, source]
    assert queue.owners() == [queue, topic, source]


def test_the_mean_size_of_an_empty_node_is_0() -> None:
    world = World()
    queue = world.queue()
    assert queue.mean_bytes() == 0
    world.put(queue, 1, 10)
    world.put(queue, 1, 31)
    assert queue.mean_bytes() == 20


def test_memory_counts_each_message_s_place_and_no_file() -> None:
    world = World()
    queue = world.queue()
    world.put(queue, 3, 100)
    assert memory_of(queue) == 300 + 3 * constants.HELD_BYTES
    queue.file_bytes = 40
    assert memory_of(queue) == 260 + 3 * constants.HELD_BYTES


def test_a_bridge_is_named_after_its_nodes() -> None:
    bridge = Bridge(Node("a", "queue"), Node("b", "topic"), None)
    assert bridge.name == bridge_name("a", "b") == "a->b"
