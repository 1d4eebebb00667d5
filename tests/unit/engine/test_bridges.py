"""Bridges in the engine: what is copied, whose room counts, and what is refused."""

from __future__ import annotations

import contextlib
import random

import pytest

from broker.engine.node import Node
from broker.errors import ConflictError, OperatorError
from broker.flow.producer_credit import ProducerCredit
from broker.queues.selector.selector import compile_selector
from tests.unit.manage_world import World

pytestmark = pytest.mark.flow

SMALL = b"\x00\x53\x75\xa0\x01a"


def full(world: World, node: Node) -> bool:
    return node.gate.closed


def drain(world: World, node: Node, count: int) -> None:
    consumer = world.consumer(node, credit=count)
    for entry in consumer.held:
        world.engine.settlement.acknowledge(node, entry)
    world.engine.delivery.remove_consumer(node, consumer)
    world.engine.end_turn()


def send(world: World, node: Node, account: ProducerCredit, most: int) -> int:
    """As many as the credit allows, up to ``most``; how many."""
    sent = 0
    while sent < most and account.outstanding > 0:
        world.engine.intake.arrive(node, account, SMALL, 0, False)
        world.engine.end_turn()
        sent += 1
    return sent


def test_a_message_is_copied_to_every_target_and_no_further() -> None:
    world = World()
    a, b, c, d = (world.queue(name) for name in "abcd")
    for source, target in ((a, b), (a, d), (b, c)):
        world.engine.topology.bridging.add(source, target)
    world.put(a, 3)
    world.put(b, 1)
    assert [node.gate.depth_msgs for node in (a, b, c, d)] == [3, 4, 1, 3]


def test_a_selector_says_what_crosses() -> None:
    world = World()
    a, b = world.queue("a"), world.queue("b")
    bridge = world.engine.topology.bridging.add(a, b, compile_selector("amqp.subject = 'x'"))
    world.engine.intake.put(a, b"\x00\x53\x73\xc0\x07\x04\x40\x40\x40\xa1\x01x" + SMALL, 0)
    world.engine.intake.put(a, SMALL, 0)
    assert (a.gate.depth_msgs, b.gate.depth_msgs) == (2, 1)
    assert (bridge.copied, bridge.passed_by) == (1, 1)


def test_a_topic_is_bridged_into_a_queue_and_a_queue_into_a_topic() -> None:
    world = World()
    news, box = world.model.nodes.create("topic", "news"), world.queue("box")
    jobs, feed = world.queue("jobs"), world.model.nodes.create("topic", "feed")
    reader = world.subscribe(feed, "feed/1")
    world.engine.topology.bridging.add(news, box)
    world.engine.topology.bridging.add(jobs, feed)
    world.put(news, 2)
    world.put(jobs, 3)
    assert (box.gate.depth_msgs, jobs.gate.depth_msgs, reader.gate.depth_msgs) == (2, 3, 3)


def test_backpressure_crosses_when_both_ends_have_flow_control() -> None:
    world = World()
    a, b = world.queue("a", flow_stop_count=100), world.queue("b", flow_stop_count=10)
    world.engine.topology.bridging.add(a, b)
    account = world.producer(a)
    assert send(world, a, account, 1000) == 10
    assert (a.gate.depth_msgs, b.gate.depth_msgs) == (10, 10)
    assert account.outstanding == 0
    drain(world, b, 4)
    assert send(world, a, account, 1000) == 4
    assert b.gate.depth_msgs == 10


@pytest.mark.parametrize("without", ["a", "b"])
def test_the_targets_fullness_stops_nobody_where_one_end_has_no_flow_control(without: str) -> None:
    world = World()
    words: dict[str, dict[str, object]] = {
        "a": {"flow_stop_count": 100, "flow_resume_count": 50},
        "b": {"flow_stop_count": 8, "max_count": 10, "overflow": "reject"},
    }
    words[without]["flow_control"] = False
    a, b = world.queue("a", **words["a"]), world.queue("b", **words["b"])
    told: list[tuple[str, str]] = []
    world.engine.changes.emit = lambda kind, node, fields: told.append((kind, str(fields["bridge"])))
    bridge = world.engine.topology.bridging.add(a, b)
    account = world.producer(a)
    assert send(world, a, account, 50) == 50
    assert (a.gate.depth_msgs, b.gate.depth_msgs) == (50, 10)
    assert (bridge.copied, bridge.refused) == (10, 40)
    assert told == [("bridge_refused", "a->b")]


def test_the_targets_overflow_decides() -> None:
    world = World()
    a, b = world.queue("a"), world.queue("b", max_count=5, overflow="ring")
    bridge = world.engine.topology.bridging.add(a, b)
    world.put(a, 20)
    assert (b.gate.depth_msgs, b.dropped, bridge.refused) == (5, 15, 0)


def test_flow_control_switched_at_runtime_couples_and_uncouples() -> None:
    world = World()
    a, b = world.queue("a"), world.queue("b", flow_stop_count=5)
    bridge = world.engine.topology.bridging.add(a, b)
    account = world.producer(a)
    assert send(world, a, account, 100) == 5
    world.model.nodes.update("b", {"flow_control": False})
    world.engine.end_turn()
    assert not bridge.crosses
    assert send(world, a, account, 100) == 100
    world.model.nodes.update("b", {"flow_control": None})
    world.engine.end_turn()
    assert bridge.crosses
    assert account.outstanding == 0


def test_a_subscription_of_a_target_topic_holds_the_source_back_while_it_is_there() -> None:
    world = World("policies:\n  - match: feed\n    kind: topic\n    flow_stop_count: 5\n")
    jobs, feed = world.queue("jobs"), world.model.nodes.create("topic", "feed")
    world.engine.topology.bridging.add(jobs, feed)
    account = world.producer(jobs)
    assert send(world, jobs, account, 20) == 20
    reader = world.subscribe(feed, "feed/1")
    assert send(world, jobs, account, 20) == 5
    drain(world, reader, 2)
    assert send(world, jobs, account, 20) == 2
    world.engine.lifecycle.unsubscribe(reader)
    world.engine.end_turn()
    assert send(world, jobs, account, 20) == 20
    assert feed.allocator.promised_msgs == 0


def test_nothing_stays_reserved_when_a_bridge_goes() -> None:
    world = World()
    a, b = world.queue("a", flow_stop_count=50), world.queue("b", flow_stop_count=10)
    bridge = world.engine.topology.bridging.add(a, b)
    account = world.producer(a)
    assert b.gate.promised_msgs == account.outstanding > 0
    world.engine.topology.bridging.remove(bridge)
    world.engine.end_turn()
    assert b.gate.promised_msgs == 0
    assert b.bridge_sources == []
    assert send(world, a, account, 100) == 50


def test_a_deleted_end_takes_its_bridges_along() -> None:
    world = World()
    a, b = world.queue("a"), world.queue("b", flow_stop_count=5)
    world.engine.topology.bridging.add(a, b)
    account = world.producer(a)
    assert send(world, a, account, 100) == 5
    world.model.nodes.delete("b")
    world.engine.end_turn()
    assert world.engine.topology.bridging.all == []
    assert send(world, a, account, 100) == 100


def test_producers_of_both_ends_share_the_targets_room() -> None:
    """Idle credit at one end is lent to the other, and each end is first in its turn."""
    world = World()
    a, b = world.queue("a"), world.queue("b", flow_stop_count=10)
    world.engine.topology.bridging.add(a, b)
    idle = world.producer(a)
    assert idle.outstanding == 10
    busy = world.producer(b, "s2")
    assert busy.outstanding == 0
    seconds = 0.0
    while busy.outstanding == 0:
        seconds += 0.01
        assert seconds < 1
        world.at(seconds)
        world.engine.end_turn()
    taken = {"a": 0, "b": 0}
    for _ in range(2000):
        taken["a"] += send(world, a, idle, 1)
        taken["b"] += send(world, b, busy, 1)
        drain(world, b, 3)
        assert b.gate.depth_msgs + b.gate.promised_msgs <= 10
        seconds += 0.002
        world.at(seconds)
        world.engine.end_turn()
    assert min(taken.values()) >= 200, taken


@pytest.mark.parametrize("ends", [("a", "a"), ("c", "a"), ("b", "a")])
def test_a_cycle_is_refused_with_the_way_it_would_take(ends: tuple[str, str]) -> None:
    world = World()
    nodes = {name: world.queue(name) for name in "abc"}
    world.engine.topology.bridging.add(nodes["a"], nodes["b"])
    world.engine.topology.bridging.add(nodes["b"], nodes["c"])
    with pytest.raises(OperatorError, match="would close a cycle: " + ends[0] + " -> a"):
        world.engine.topology.bridging.add(nodes[ends[0]], nodes[ends[1]])


def test_one_bridge_for_each_pair() -> None:
    world = World()
    a, b = world.queue("a"), world.queue("b")
    world.engine.topology.bridging.add(a, b)
    with pytest.raises(ConflictError, match="'a->b' exists already"):
        world.engine.topology.bridging.add(a, b)


def test_why_names_the_target() -> None:
    world = World()
    a, b = world.queue("a"), world.queue("b", flow_stop_count=5)
    world.engine.topology.bridging.add(a, b)
    send(world, a, world.producer(a), 100)
    (answer,) = world.model.diagnostics.why("a")
    assert "queue 'b' is stopped by flow_stop_count (5 of 5 messages queued)" in answer.sentence


@pytest.mark.parametrize("seed", range(4))
def test_a_walk_keeps_every_law(seed: int) -> None:
    """Depth and promises never pass a stop threshold, whatever is bridged, changed, sent and settled."""
    walk = random.Random(seed)
    world = World("policies:\n  - match: t\n    kind: topic\n    flow_stop_count: 20\n")
    nodes = [world.queue(name, flow_stop_count=walk.randint(5, 40)) for name in ("a", "b", "c")]
    topic = world.model.nodes.create("topic", "t")
    nodes.append(topic)
    accounts = [(node, world.producer(node, f"s{i}")) for i, node in enumerate([*nodes, *nodes])]
    seconds = 0.0
    for step in range(600):
        verb = walk.randrange(8)
        node = walk.choice(nodes)
        if verb == 0 and node is not topic:
            with contextlib.suppress(OperatorError):
                world.engine.topology.bridging.add(node, walk.choice(nodes))
        elif verb == 1 and world.engine.topology.bridging.all and walk.random() < 0.3:
            world.engine.topology.bridging.remove(walk.choice(world.engine.topology.bridging.all))
        elif verb == 2 and len(topic.subscriptions) < 3:
            world.subscribe(topic, f"t/{step}")
        elif verb == 3 and topic.subscriptions and walk.random() < 0.2:
            world.engine.lifecycle.unsubscribe(walk.choice(topic.subscriptions))
        elif verb == 4 and node is not topic:
            world.model.nodes.update(node.name, {"flow_control": walk.random() < 0.8})
        elif verb == 5:
            for each in world.engine.topology.every_node():
                drain(world, each, walk.randint(0, 5))
        else:
            for owner, account in accounts:
                send(world, owner, account, walk.randint(0, 4))
        world.engine.end_turn()
        seconds += 0.013
        world.at(seconds)
        for each in world.engine.topology.every_node():
            gate = each.gate
            if gate.enforced and gate.stop_msgs and not gate.full:
                assert gate.depth_msgs + gate.promised_msgs <= gate.stop_msgs
            owed = sum(owner.allocator.promised_msgs * _uses(owner, each) for owner in nodes)
            assert gate.promised_msgs == owed, each.name
    for bridge in list(world.engine.topology.bridging.all):
        world.engine.topology.bridging.remove(bridge)
    for owner, account in accounts:
        world.engine.producers.close(owner, account)
    assert all(each.gate.promised_msgs == 0 for each in world.engine.topology.every_node())
    assert world.engine.depths.memory.promised_bytes == 0


def _uses(owner: Node, node: Node) -> int:
    own = owner.allocator.gate is node.gate
    return own + owner.allocator.ways_to(node.gate)


def test_two_ways_to_one_queue_need_its_room_twice() -> None:
    """A topic's two queues, one of them bridged into the other: each message comes there twice."""
    world = World("policies:\n  - {match: t, kind: topic}\n")
    engine = world.engine
    target = world.queue("target", flow_stop_count=10)
    source = world.queue("source", flow_stop_count=100)
    topic = world.model.nodes.create("topic", "t")
    for each in (source, target):
        engine.topology.bind(topic, each)
    bridge = engine.topology.bridging.add(source, target)
    account = world.producer(topic)
    engine.end_turn()
    assert (account.outstanding, target.gate.promised_msgs) == (5, 10)
    assert send(world, topic, account, 20) == 5
    assert target.gate.depth_msgs == 10

    engine.topology.unbind(topic, target)
    assert topic.allocator.ways_to(target.gate) == 1, "the bridge still takes messages there"
    engine.topology.bind(topic, target)
    engine.topology.bridging.remove(bridge)
    assert topic.allocator.ways_to(target.gate) == 1, "it is bound"
    engine.topology.unbind(topic, target)
    assert topic.allocator.ways_to(target.gate) == 0
    account.close()
    assert (target.gate.promised_msgs, target.gate.promised_bytes) == (0, 0)


def test_a_bridge_reserves_no_room_where_publishers_are_never_held() -> None:
    world = World()
    jobs, feed = world.queue("jobs"), world.model.nodes.create("topic", "feed")
    held, free = world.subscribe(feed, "feed/1"), world.subscribe(feed, "feed/2")
    free.never_blocks_publishers = True
    bridge = world.engine.topology.bridging.add(jobs, feed)
    assert [taker for _, taker in bridge.coupled] == [held]
    assert free.bridge_sources == []
