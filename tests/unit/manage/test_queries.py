"""The views of nodes and of the broker, of a real engine."""

from __future__ import annotations

from tests.unit.manage_world import SECOND, World


def test_totals_never_fall_when_nodes_go() -> None:
    world = World()
    for name in ("a", "b"):
        node = world.queue(name)
        world.fill(node, world.producer(node), 3)
    assert world.model.queries.snapshot().broker.totals.received == 6
    world.model.nodes.delete("a")
    assert world.model.queries.snapshot().broker.totals.received == 6
    world.engine.lifecycle.delete("b")  # behind the model's back, as a link's temporary node goes
    assert world.model.queries.snapshot().broker.totals.received == 6
    assert world.model.queries.snapshot().broker.totals.received == 6


def test_a_topics_copies_are_received_once_and_lie_in_its_subscriptions() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news")
    for number in (1, 2):
        world.subscribe(topic, f"news/s{number}")
    world.fill(topic, world.producer(topic), 4)
    snapshot = world.model.queries.snapshot()
    assert (snapshot.broker.totals.received, snapshot.broker.depth_msgs) == (4, 8)
    views = {view.name: view for view in snapshot.queues}
    assert (views["news"].depth_msgs, views["news/s1"].depth_msgs) == (8, 4)
    assert views["news/s1"].topic == "news"


def test_the_view_of_a_stopped_queue_says_since_when_and_by_what() -> None:
    world = World()
    node = world.queue(flow_stop_count=4, flow_resume_count=2)
    world.fill(node, world.producer(node), 4)
    world.at(7)
    view = world.model.queries.snapshot().queues[0]
    assert (view.flow_stopped, view.stopped_by, view.flow_stopped_count) == (True, "flow_stop_count", 1)
    assert (view.flow_stopped_for_s, view.flow_stopped_seconds) == (7.0, 7.0)
    assert (view.depth_msgs, view.promised_msgs, view.blocked_producers) == (4, 0, 1)
    broker = world.model.queries.snapshot().broker
    assert (broker.stopped_nodes, broker.uptime_s) == (1, 12.0)
    assert world.engine.turn.now_ns - view.flow_stopped_since_ns == 7 * SECOND


def test_a_message_that_nobody_takes_is_unrouted() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news", {})
    world.put(topic, 2)
    assert topic.unrouted == 2
    picky = world.subscribe(topic, "picky")
    picky.filter = Nothing()
    world.put(topic, 3)
    assert topic.unrouted == 5
    world.subscribe(topic, "all")
    world.put(topic, 4)
    assert topic.unrouted == 5


def test_a_message_that_a_bridge_takes_along_went_somewhere() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news", {})
    world.queue("copies")
    world.model.bridges.create("news->copies", {})
    world.put(topic, 2)
    assert (topic.unrouted, world.model.nodes.find("copies").gate.depth_msgs) == (0, 2)


class Nothing:
    """A filter that lets nothing through."""

    def matches(self, data: bytes) -> bool:
        return False
