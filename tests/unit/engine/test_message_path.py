"""The engine's message path: what a sender is told, who gets the message next, and what each outcome does."""

from __future__ import annotations

import pytest

from broker import constants
from broker.engine.node import Node
from tests.unit.manage_world import FakeConsumer, World

pytestmark = pytest.mark.flow

BODY = b"\x00\x53\x77\xa0\x01x"


def arrived(world: World, node: Node, count: int) -> list[int]:
    """So many messages on a producer's credit, in one turn; the codes it is told."""
    account = world.producer(node)
    codes = [world.engine.intake.arrive(node, account, BODY, 0, False) for _ in range(count)]
    world.engine.end_turn()
    return codes


def finish(world: World, node: Node, consumer: FakeConsumer, verb: str) -> None:
    """One message that the consumer holds comes to its outcome."""
    entry = consumer.held.pop(0)
    consumer.window.settled()
    consumer.in_flight -= 1
    if verb == "requeue":
        world.engine.settlement.requeue(node, entry, True)
    else:
        getattr(world.engine.settlement, verb)(node, entry)
    world.engine.end_turn()


def test_a_message_on_credit_is_accepted_and_one_beyond_it_is_not() -> None:
    world = World()
    queue = world.queue(flow_stop_count=3)
    codes = arrived(world, queue, 4)
    assert codes[:3] == [constants.ACCEPTED] * 3
    assert codes[3] == constants.OVERSENT
    assert (queue.gate.depth_msgs, queue.received) == (3, 3)


def test_a_consumer_gets_messages_in_order_and_no_more_than_its_credit() -> None:
    world = World()
    queue = world.queue()
    arrived(world, queue, 5)
    consumer = world.consumer(queue, credit=3)
    assert [entry.seq for entry in consumer.held] == [1, 2, 3]
    assert queue.queue.ready == 2


@pytest.mark.parametrize(
    ("verb", "depth", "accepted"), [("acknowledge", 1, 1), ("requeue", 2, 0)], ids=["accepted", "modified"]
)
def test_an_outcome_takes_the_message_out_or_puts_it_back(verb: str, depth: int, accepted: int) -> None:
    world = World()
    queue = world.queue()
    arrived(world, queue, 2)
    consumer = world.consumer(queue, credit=1)
    finish(world, queue, consumer, verb)
    assert (queue.gate.depth_msgs, queue.queue.acquired, queue.accepted) == (depth, 0, accepted)


def test_a_message_that_comes_back_keeps_its_place_and_counts_the_failure() -> None:
    world = World()
    queue = world.queue()
    arrived(world, queue, 2)
    finish(world, queue, world.consumer(queue, credit=1, link="r1"), "requeue")
    second = world.consumer(queue, credit=1, link="r2")
    assert [(entry.seq, entry.delivery_count) for entry in second.held] == [(1, 1)]


def test_room_that_a_consumer_makes_is_promised_anew() -> None:
    world = World()
    queue = world.queue(flow_stop_count=2, flow_resume_count=1)
    account = world.producer(queue)
    world.fill(queue, account, 2)
    assert account.outstanding == 0
    consumer = world.consumer(queue)
    finish(world, queue, consumer, "acknowledge")
    finish(world, queue, consumer, "acknowledge")
    assert account.outstanding == 2


def test_a_topic_copies_to_each_subscription() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news", {})
    east, west = world.subscribe(topic, "east"), world.subscribe(topic, "west")
    assert arrived(world, topic, 2) == [constants.ACCEPTED] * 2
    assert (east.gate.depth_msgs, west.gate.depth_msgs, topic.gate.depth_msgs) == (2, 2, 0)


def test_a_move_takes_the_oldest_in_order_as_far_as_there_is_room() -> None:
    world = World()
    source, target = world.queue("source"), world.queue("target", flow_stop_count=2)
    arrived(world, source, 5)
    assert world.engine.actions.move(source, target, 4) == 4
    world.engine.end_turn()
    assert (target.gate.depth_msgs, source.gate.depth_msgs) == (2, 3)
    consumer = world.consumer(target)
    assert [entry.seq for entry in consumer.held] == [1, 2]
    for _ in range(2):
        finish(world, target, consumer, "acknowledge")
    world.engine.end_turn()
    assert (len(consumer.held), source.gate.depth_msgs) == (2, 1)


def test_every_node_has_had_its_turn_at_the_end_of_one() -> None:
    world = World()
    queue = world.queue()
    world.engine.turn.mark_dirty(queue)
    world.engine.end_turn()
    assert not queue.dirty
