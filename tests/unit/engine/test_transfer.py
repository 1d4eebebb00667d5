"""Messages on their way to another node: they wait for its room, and are in their place again if it goes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from proton import Message, symbol

from broker.codec import message
from broker.engine.annotations import add_annotations
from broker.engine.node import Node
from broker.engine.transfer import BODY_LOST, EXPIRED, MOVE_STOPPED
from broker.manage.audit import audit
from broker.queues.queue import Entry
from tests.unit.manage_world import FakeConsumer, World

pytestmark = pytest.mark.flow

BODY = b"\x00\x53\x77\xa0\x01x"


def filled(world: World, name: str, count: int, **settings: object) -> Node:
    node = world.queue(name, **settings)
    for _ in range(count):
        world.engine.intake.put(node, BODY, 0)
    world.engine.end_turn()
    return node


def depths(*nodes: Node) -> list[int]:
    return [node.gate.depth_msgs for node in nodes]


def rejected(world: World, node: Node, count: int) -> None:
    """A consumer takes so many messages and rejects each."""
    consumer: FakeConsumer = world.consumer(node, credit=count)
    for entry in consumer.held:
        consumer.in_flight -= 1
        world.engine.settlement.reject(node, entry)
    world.engine.end_turn()


def test_dead_letters_wait_in_their_queue_until_their_target_has_room() -> None:
    world = World()
    letters = filled(world, "letters", 0, flow_stop_count=1)
    orders = filled(world, "orders", 3, dead_letter_address="letters")
    world.engine.letters.find = lambda _: letters
    rejected(world, orders, 3)
    assert depths(orders, letters) == [2, 1]
    assert orders.letters is not None
    assert orders.letters.waiting_msgs() == 2
    consumer = world.consumer(letters)
    for waiting in (1, 0):
        consumer.in_flight -= 1
        world.engine.settlement.acknowledge(letters, consumer.held[-1])
        world.engine.end_turn()
        world.engine.end_turn()
        assert orders.letters.waiting_msgs() == waiting
    assert depths(orders, letters) == [0, 1]


def test_dead_letters_are_handed_out_again_flagged_where_their_target_is_deleted() -> None:
    world = World()
    letters = filled(world, "letters", 1, flow_stop_count=1)
    orders = filled(world, "orders", 1, dead_letter_address="letters")
    world.engine.letters.find = lambda _: letters
    rejected(world, orders, 1)
    assert orders.letters is not None
    orders.letters.close("deleted")
    again = world.consumer(orders, link="r2")
    assert [entry.redelivered for entry in again.held] == [True]


@pytest.mark.parametrize("reason", [EXPIRED, BODY_LOST])
def test_no_consumer_gets_an_expired_or_broken_letter_whose_place_is_deleted(reason: str) -> None:
    world = World()
    letters = filled(world, "letters", 1, flow_stop_count=1)
    orders = filled(world, "orders", 1, dead_letter_address="letters")
    world.engine.letters.find = lambda _: letters
    # As a run that comes back from disk has it: nothing of the entry itself says that its time is over.
    entry = orders.queue.cursor
    assert entry is not None
    orders.queue.take(entry)
    world.engine.settlement.dead_letter(orders, entry, reason)
    assert orders.letters is not None
    assert orders.letters.waiting_msgs() == 1
    orders.letters.close("deleted")
    consumer = world.consumer(orders, link="r2")
    world.engine.end_turn()
    assert consumer.held == []
    again = filled(world, "again", 0)
    letters.deleted = True
    world.engine.letters.find = lambda _: again
    world.engine.begin_turn(world.engine.turn.now_ns)
    assert (depths(orders, again), consumer.held) == ([0, 1], [])


def test_a_move_waits_for_room_and_ends_at_its_count() -> None:
    world = World()
    source, target = filled(world, "source", 5), filled(world, "target", 0, flow_stop_count=2)
    world.engine.actions.move(source, target, 4)
    world.engine.end_turn()
    assert depths(source, target) == [3, 2]
    consumer = world.consumer(target)
    for entry in list(consumer.held):
        consumer.in_flight -= 1
        world.engine.settlement.acknowledge(target, entry)
    world.engine.end_turn()
    world.engine.end_turn()
    assert (depths(source, target), world.engine.moves) == ([1, 2], [])


def test_a_move_ends_at_a_hard_limit_and_says_how_far_it_came() -> None:
    world = World()
    told: list[tuple[str, Mapping[str, object]]] = []
    world.engine.changes.emit = lambda kind, node, fields: told.append((kind, fields))
    source = filled(world, "source", 3)
    target = filled(world, "target", 0, max_count=1, flow_control=False, overflow="reject")
    world.engine.actions.move(source, target, 3)
    world.engine.end_turn()
    assert depths(source, target) == [2, 1]
    assert [(kind, fields["moved"]) for kind, fields in told if kind == MOVE_STOPPED] == [(MOVE_STOPPED, 1)]
    # The rest is in its old place, in order.
    assert [entry.seq for entry in world.consumer(source).held] == [2, 3]


# --- moves of messages that a consumer wrote on, and to a queue that knows them


def text(name: str) -> bytes:
    return bytes(Message(body="x", id=name).encode())


def annotated(entry: Entry) -> dict[object, object]:
    found = Message()
    found.decode(entry.data)
    return dict(found.annotations or {})


def added(**annotations: object) -> bytes:
    """The encoded map of a `modified` outcome's annotations."""
    encoded = Message(annotations={symbol(key): value for key, value in annotations.items()}).encode()
    return message.annotations_of(bytes(encoded))


def test_a_move_takes_along_the_annotations_that_a_consumer_added() -> None:
    world = World()
    source, target = world.queue("source"), world.queue("target", flow_stop_count=1)
    for number in (1, 2):
        annotations = {symbol("number"): number, symbol("by"): "sender"}
        data = bytes(Message(body="x", annotations=annotations).encode())
        world.engine.intake.put(source, data, message.scan(data))
    consumer = world.consumer(source)
    for entry in consumer.held:
        add_annotations(entry, added(by="consumer"))
        world.engine.settlement.requeue(source, entry, True)
    world.engine.delivery.remove_consumer(source, consumer)
    world.engine.actions.move(source, target, 2)
    world.engine.end_turn()
    # The second waits for room first.
    assert depths(source, target) == [1, 1]
    reader = world.consumer(target)
    for number in (1, 2):
        assert annotated(reader.held[-1]) == {"number": number, "by": "consumer"}
        reader.in_flight -= 1
        world.engine.settlement.acknowledge(target, reader.held[-1])
        world.engine.end_turn()
        world.engine.end_turn()
    assert (depths(source, target), world.engine.moves) == ([0, 0], [])
    assert audit(world.engine).breaches == ()


def test_a_move_brings_nothing_that_its_target_knows_as_a_duplicate() -> None:
    world = World()
    source, target = world.queue("source"), world.queue("target", duplicate_window=10)
    for name in ("a", "b", "b"):
        world.engine.intake.put(source, text(name), 0)
    world.engine.intake.put(target, text("a"), 0)
    world.engine.actions.move(source, target, 3)
    world.engine.end_turn()
    world.engine.end_turn()
    assert (depths(source, target), target.duplicated) == ([0, 2], 2)
    world.engine.intake.put(target, text("b"), 0)
    assert (depths(target), target.duplicated) == ([2], 3)
    assert audit(world.engine).breaches == ()


# --- dead letters whose ids repeat


def with_ids(world: World, name: str, *ids: str, **settings: object) -> Node:
    node = world.queue(name, dead_letter_address="letters", **settings)
    for each in ids:
        data = text(each)
        world.engine.intake.put(node, data, message.scan(data))
    world.engine.end_turn()
    return node


@pytest.mark.parametrize("room", [10, 1], ids=["there is room", "they wait for room"])
def test_a_dead_letter_is_kept_where_its_place_has_had_a_message_of_its_id(room: int) -> None:
    world = World()
    letters = world.queue("letters", duplicate_window=10, flow_stop_count=room)
    world.engine.letters.find = lambda _: letters
    sources = [with_ids(world, name, "same") for name in ("a", "b")]
    for each in sources:
        rejected(world, each, 1)
    assert sum(depths(*sources, letters)) == 2
    consumer = world.consumer(letters)
    for at in range(2):
        consumer.in_flight -= 1
        world.engine.settlement.acknowledge(letters, consumer.held[at])
        world.engine.end_turn()
        world.engine.end_turn()
    assert (len(consumer.held), letters.duplicated) == (2, 0)
    # Others are compared as before.
    data = text("same")
    world.engine.intake.put(letters, data, message.scan(data))
    assert (depths(letters), letters.duplicated) == ([0], 1)


def test_an_overflow_is_kept_where_its_place_has_had_a_message_of_its_id() -> None:
    world = World()
    letters = world.queue("letters", duplicate_window=10)
    world.engine.letters.find = lambda _: letters
    for name in ("a", "b"):
        with_ids(world, name, "full", "same", max_count=1, flow_control=False, overflow="dead_letter")
    assert depths(letters) == [2]
