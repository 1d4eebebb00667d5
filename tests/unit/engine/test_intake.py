"""A message arrives: where it goes, and what its sender hears."""

from __future__ import annotations

import pytest
from proton import Message

from broker import constants
from broker.codec import message
from tests.unit.engine.parts_world import Link, PartsWorld


@pytest.fixture
def world() -> PartsWorld:
    return PartsWorld()


def arrive(world: PartsWorld, node: object, account: object, settled: bool = False, **fields: object) -> int:
    data = bytes(Message(body="x", **fields).encode())
    code = world.engine.intake.arrive(node, account, data, message.scan(data), settled)  # type: ignore[arg-type]
    return int(code)


def test_a_message_on_credit_is_taken_and_its_credit_is_gone(world: PartsWorld) -> None:
    node = world.create(flow_stop_count=10)
    account = world.engine.producers.open(node, Link(), True)
    world.turn()
    had = account.outstanding
    assert arrive(world, node, account) == constants.ACCEPTED
    assert (account.used, node.gate.depth_msgs) == (1, 1)
    assert account.outstanding <= had


def test_a_message_without_credit_is_a_violation(world: PartsWorld) -> None:
    node = world.create(flow_stop_count=10)
    world.engine.actions.hold(node, True)
    account = world.engine.producers.open(node, Link(), True)
    world.turn()
    assert arrive(world, node, account) == constants.OVERSENT
    assert node.gate.depth_msgs == 0


def test_a_message_on_credit_that_was_taken_back_is_parked(world: PartsWorld) -> None:
    node = world.create(flow_stop_count=10)
    account = world.engine.producers.open(node, Link(), True)
    world.turn()
    world.engine.actions.hold(node, True)
    world.turn()
    assert arrive(world, node, account) == constants.PARK
    assert arrive(world, node, account, settled=True) == constants.PARK
    assert node.overrun == 1, "a settled one can't be refused any more"


def test_a_topic_copies_to_every_subscription_and_counts_what_nobody_takes(world: PartsWorld) -> None:
    topic = world.create("news", kind="topic")
    assert world.put(topic) == constants.ACCEPTED
    assert topic.unrouted == 1
    parts = [world.subscribe(topic, each) for each in "ab"]
    world.put(topic)
    assert [each.gate.depth_msgs for each in parts] == [1, 1]
    assert (topic.received, topic.unrouted) == (2, 1)


@pytest.mark.parametrize(
    ("overflow", "code", "bodies"),
    [
        ("reject", constants.REFUSED, 2),
        ("drop_newest", constants.ACCEPTED, 2),
        ("ring", constants.ACCEPTED, 2),
    ],
)
def test_the_hard_limit_is_never_passed(world: PartsWorld, overflow: str, code: int, bodies: int) -> None:
    node = world.create(max_count=2, overflow=overflow)
    codes = [world.put(node, each) for each in "abc"]
    assert codes == [constants.ACCEPTED, constants.ACCEPTED, code]
    assert node.gate.depth_msgs == bodies
    first = node.queue.head
    assert first is not None
    assert (b"b" in first.data) == (overflow == "ring")


def test_a_duplicate_is_accepted_and_put_in_once(world: PartsWorld) -> None:
    node = world.create(duplicate_window=10)
    for _ in range(3):
        assert world.put(node, id="same") == constants.ACCEPTED
    assert (node.gate.depth_msgs, node.duplicated) == (1, 2)


def test_a_refused_message_may_come_again(world: PartsWorld) -> None:
    node = world.create(duplicate_window=10, max_count=1)
    world.put(node, id="a")
    assert world.put(node, id="b") == constants.REFUSED
    world.engine.actions.purge(node)
    assert world.put(node, id="b") == constants.ACCEPTED
    assert node.gate.depth_msgs == 1


def test_a_copy_over_a_bridge_goes_no_further_and_a_refusal_is_told_once(world: PartsWorld) -> None:
    source, target, beyond = (world.create(each, max_count=2) for each in ("a", "b", "c"))
    world.engine.topology.bridging.add(source, target)
    world.engine.topology.bridging.add(target, beyond)
    world.put(source)
    assert [each.gate.depth_msgs for each in (source, target, beyond)] == [1, 1, 0]
    world.put(target)
    source.hard_msgs = 10
    for _ in range(3):
        world.put(source)
    assert (target.gate.depth_msgs, target.bridges[0].copied) == (2, 1)
    assert world.told == [("bridge_refused", "b")]


def test_what_is_put_behind_waits_for_what_was_stored_before(world: PartsWorld) -> None:
    node, audit = world.create(durable=True), world.create("audit")
    window = world.consumer(audit)
    world.put(node, durable=True)
    data = bytes(Message(body="done").encode())
    world.engine.intake.put_behind(audit, data)
    world.engine.end_turn()
    assert window.got == []
    world.settle()
    assert len(window.got) == 1


def test_a_bridge_from_a_bound_queue_changes_nothing_for_those_behind_it(world: PartsWorld) -> None:
    topic, copies = world.create("news", kind="topic"), world.create("copies")
    first, second = (world.subscribe(topic, name) for name in "ab")
    world.engine.topology.bridging.add(first, copies)
    account = world.engine.producers.open(topic, Link(), True)
    account.origin = second.not_from = object()
    world.turn()
    assert arrive(world, topic, account) == constants.ACCEPTED
    assert [each.gate.depth_msgs for each in (first, copies, second)] == [1, 1, 0]


@pytest.mark.parametrize("kind", ["plain", "last values"])
def test_an_answer_is_seen_once_all_that_was_stored_before_is_on_disk(world: PartsWorld, kind: str) -> None:
    answers = world.create("answers", **({"last_value_key": "share"} if kind == "last values" else {}))
    orders = world.create("orders", durable=True)
    reader = world.consumer(answers)
    world.engine.intake.put_behind(answers, b"\x00\x53\x77\xa1\x01a")
    world.turn()
    assert len(reader.got) == 1, "nothing is stored that it would wait for"
    world.put(orders, durable=True)
    world.engine.intake.put_behind(answers, b"\x00\x53\x77\xa1\x01b")
    world.turn()
    assert len(reader.got) == 1
    world.settle()
    assert [entry.data[-1:] for entry in reader.got] == [b"a", b"b"]
    world.put(orders, durable=True)
    world.engine.intake.put_behind(answers, b"\x00\x53\x77\xa1\x01c")
    world.engine.lifecycle.delete("answers")
    world.settle()
    assert len(reader.got) == 2
