"""A queue that goes to another engine: frozen, it stays as it is; there it is what it was."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, symbol

from broker.codec import message
from broker.engine.handoff import (
    Capture,
    HandedMessage,
    Reception,
    admit_parked,
    freeze,
    thaw,
    unrest,
    why_not,
)
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.manage.audit import audit
from broker.server.cells.parcels import ParcelError, read_ids, read_messages, written_ids, written_messages
from tests.unit.engine.parts_world import Link, PartsWorld


def sound(world: PartsWorld) -> None:
    assert audit(world.engine).breaches == ()


def captured(world: PartsWorld, node: Node) -> list[HandedMessage]:
    capture = Capture(world.engine, node, lambda: None)
    found: list[HandedMessage] = []
    while part := capture.take():
        found += part
    assert capture.count == len(found)
    return found


def handed_over(source: PartsWorld, node: Node, **given: object) -> tuple[PartsWorld, Node]:
    """Hand a node over to another engine of the same time, by way of bytes as between cells."""
    target = PartsWorld()
    target.engine.begin_turn(source.engine.turn.now_ns)
    there = target.create(node.name, **given)
    freeze(target.engine, there)
    reception = Reception(target.engine, there)
    capture = Capture(source.engine, node, lambda: None)
    while ids := capture.ids():
        reception.remember(read_ids(written_ids(ids)))
    reception.put(read_messages(written_messages(captured(source, node))))
    target.settle()
    thaw(target.engine, there)
    target.engine.changes.hold(there, False)
    target.settle()
    return target, there


def body_of(data: bytes) -> object:
    found = Message()
    found.decode(data)
    return found.body


def test_nothing_of_a_frozen_queue_is_delivered_expires_or_becomes_due() -> None:
    world = PartsWorld()
    node = world.create(dead_letter_address="")
    window = world.consumer(node, 0)
    world.put(node, "a")
    world.put(node, "expires", ttl=0.05)
    world.put(node, "later", annotations={symbol("x-opt-delivery-delay"): 50})
    freeze(world.engine, node)
    window.most = 100
    for _ in range(3):
        world.turn(100)
    assert (window.got, node.gate.depth_msgs, node.gate.closed) == ([], 3, True)
    sound(world)
    # And it goes on as if nothing had been.
    thaw(world.engine, node)
    world.engine.changes.hold(node, False)
    for _ in range(3):
        world.turn(1)
    assert [body_of(each.data) for each in window.got] == ["a", "later"]
    assert (node.expired, node.gate.closed) == (1, False)
    sound(world)


def test_producers_lose_their_credit_and_what_was_under_way_is_taken_in_below_the_threshold() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=10)
    link = Link()
    account = world.engine.producers.open(node, link, True)
    world.turn()
    assert link.credit > 0
    freeze(world.engine, node)
    world.turn()
    assert (link.credit, account.outstanding) == (0, 0)
    for _ in range(12):
        world.engine.parking.park(node, account, object(), 10, False)
    world.turn()
    assert not link.admitted
    # The link puts what it admits; here that is done for it.
    admit = link.admit

    def putting(parked: object, size: int) -> None:
        admit(parked, size)
        world.put(node)

    link.admit = putting  # type: ignore[method-assign]
    assert admit_parked(node) == 10
    assert (node.gate.depth_msgs, len(account.parked)) == (10, 2)
    sound(world)


def test_what_is_unsettled_is_waited_for() -> None:
    world = PartsWorld()
    node = world.create(durable=True)
    window = world.consumer(node)
    world.put(node, durable=True)
    world.settle()
    freeze(world.engine, node)
    assert "unsettled" in unrest(world.engine, node)
    world.engine.settlement.acknowledge(node, window.got[0])
    assert unrest(world.engine, node) == ""
    world.put(node, durable=True)
    assert "wait for the disk" in unrest(world.engine, node)
    world.settle()
    assert unrest(world.engine, node) == ""
    world.engine.lifecycle.delete(node.name)
    with pytest.raises(OperatorError, match="was deleted"):
        unrest(world.engine, node)


def test_a_queue_whose_order_changes_meanwhile_is_not_read_on() -> None:
    world = PartsWorld()
    node = world.create()
    world.put(node)
    freeze(world.engine, node)
    capture = Capture(world.engine, node, lambda: None)
    node.queue = type(node.queue)()
    with pytest.raises(OperatorError, match="changed meanwhile"):
        capture.take()


def test_what_has_two_ends_or_files_of_its_own_stays() -> None:
    world = PartsWorld()
    topic, queue = world.create("news", kind="topic"), world.create()
    assert (why_not(topic), why_not(queue)) == ("", "")
    world.engine.topology.bind(topic, queue)
    assert "a topic with" in why_not(topic)
    assert "bound to a topic" in why_not(queue)
    assert "subscription" in why_not(world.subscribe(topic, "s"))


def test_budgets_hold_at_the_other_end() -> None:
    world = PartsWorld()
    world.engine.limit(1 << 20, 0)
    node = world.create()
    freeze(world.engine, node)
    part = [HandedMessage(0, 0, 0, 0, b"x" * 400_000)]
    reception = Reception(world.engine, node)
    reception.put(part)
    reception.put(part)
    with pytest.raises(OperatorError, match="memory_limit has no room"):
        reception.put(part)
    assert node.gate.depth_msgs == 2


@pytest.mark.parametrize("data", [b"x", b"\0" * 30 + b"\xff"])
def test_what_is_cut_off_is_no_parcel(data: bytes) -> None:
    for read in (read_messages, read_ids):
        with pytest.raises(ParcelError):
            read(data)


KINDS: list[dict[str, object]] = [
    {},
    {"priority": "strict"},
    {"priority": "fair"},
    {"message_groups": "sticky"},
    {"duplicate_window": 1000},
    {"last_value_key": "key"},
    {"redelivery_delay": 50},
]
VERBS = ("put", "put", "put", "durable", "high", "ttl", "delay", "fail", "release", "accept", "time")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KINDS), st.lists(st.sampled_from(VERBS), max_size=40))
def test_a_queue_is_there_what_it_was_here(kind: dict[str, object], verbs: list[str]) -> None:
    """After any walk, in each kind of queue: the same messages, in the same order, with all that is known of
    them; the laws hold at both ends, and the store there has what is durable.
    """
    world = PartsWorld()
    given_settings = {"durable": True, "dead_letter_address": "", "max_delivery_count": 0, **kind}
    node = world.create("orders", **given_settings)
    window = world.consumer(node, 2)
    numbers = count()
    for verb in verbs:
        number = next(numbers)
        named = {
            "id": f"m{number % 20}",
            "properties": {"key": f"k{number % 5}"},
            "group_id": f"g{number % 3}",
        }
        held = window.got[0] if window.got else None
        if verb == "time":
            world.turn(20)
        elif verb in ("fail", "release", "accept"):
            if held is not None:
                window.got.remove(held)
                window.in_flight -= 1
                if verb == "accept":
                    world.engine.settlement.acknowledge(node, held)
                else:
                    world.engine.settlement.requeue(node, held, verb == "fail")
        else:
            kinds: dict[str, dict[str, object]] = {
                "ttl": {"ttl": 0.06},
                "delay": {"annotations": {symbol("x-opt-delivery-delay"): 70}},
                "high": {"priority": 9},
            }
            world.put(node, str(number), verb != "put", **named, **kinds.get(verb, {}))
        world.settle()
    for entry in window.got:
        world.engine.settlement.requeue(node, entry, False)
    window.most = 0
    window.got.clear()
    freeze(world.engine, node)
    world.settle()
    assert unrest(world.engine, node) == ""
    before = captured(world, node)
    assert len(before) == node.gate.depth_msgs
    target, there = handed_over(world, node, **given_settings)
    freeze(target.engine, there)
    assert captured(target, there) == before
    assert (there.gate.depth_msgs, there.gate.depth_bytes) == (node.gate.depth_msgs, node.gate.depth_bytes)
    assert (there.stored_msgs, there.kept_bytes) == (node.stored_msgs, node.kept_bytes)
    if node.duplicates is not None and there.duplicates is not None:
        assert there.duplicates.ids() == node.duplicates.ids()
    thaw(target.engine, there)
    sound(target)
    thaw(world.engine, node)
    world.engine.changes.hold(node, False)
    world.settle()
    sound(world)
    for each in before:
        assert message.scan(each.data) >= 0
