"""Last-value queues in the engine: what replacing gives back, in memory, at the gate and in the store."""

from __future__ import annotations

import pytest
from proton import Message, symbol

from broker import constants
from broker.codec import message
from broker.engine.node import Node
from broker.engine.schedules import LOG_NAME
from broker.engine.transaction import Retirement, Transaction
from broker.engine.transactions import REJECTED, RELEASED
from broker.errors import OperatorError
from broker.manage.audit import audit
from broker.queues.queue import Entry
from tests.unit.engine.parts_world import Link, PartsWorld
from tests.unit.engine.test_transaction import Controller


def valued(value: str, durable: bool = True, delay_ms: int = 0, pad: int = 0) -> bytes:
    made = Message(body=value + "." * pad, durable=durable, properties={"share": value[0]})
    if delay_ms:
        made.annotations = {symbol("x-opt-delivery-delay"): delay_ms}
    return bytes(made.encode())


def text(data: bytes) -> str:
    found = Message()
    found.decode(data)
    return str(found.body).rstrip(".")


class World(PartsWorld):
    """A durable last-value queue; ``check`` compares engine and store."""

    def values(self, **given: object) -> Node:
        return self.create("prices", **{"durable": True, "last_value_key": "share", **given})

    def value(self, node: Node, *values: str, durable: bool = True, delay_ms: int = 0, pad: int = 0) -> int:
        code = -1
        for each in values:
            data = valued(each, durable, delay_ms, pad)
            code = int(self.engine.intake.put(node, data, message.scan(data)))
        return code

    def kept(self, name: str = "prices") -> list[str]:
        """The store's values of the node, in order."""
        log = self.store.shelves.get(name)
        skip = 8 if name.startswith(LOG_NAME) else 0
        return [] if log is None else [text(each[3][skip:]) for _, each in sorted(log.messages.items())]

    def check(self, node: Node) -> None:
        assert audit(self.engine).breaches == ()
        entries = list(node.queue)
        delayed = [] if node.schedule is None else list(node.schedule)
        assert node.gate.depth_msgs == len(entries) + len(delayed)
        durable = [each.data for each in entries if each.durable]
        durable += [each.data for each in delayed if each.durable]
        assert node.stored_msgs == len(durable)
        assert node.kept_bytes == sum(map(len, durable))
        if node.shelf is not None:
            assert self.kept() == [text(each.data) for each in entries if each.durable]


@pytest.fixture
def world() -> World:
    return World()


def shown(node: Node) -> list[str]:
    return [text(entry.data) for entry in node.queue]


def test_the_store_has_one_value_a_key(world: World) -> None:
    node = world.values()
    world.value(node, "a1", "b1", "a2")
    world.check(node)
    world.settle()
    assert world.kept() == ["b1", "a2"]
    world.value(node, "b2", "c1", "c2")
    world.check(node)
    world.settle()
    world.check(node)
    assert world.kept() == shown(node) == ["a2", "b2", "c2"]
    assert node.replaced == 3
    assert node.queue.ready == 3


def test_the_removal_is_in_the_group_of_the_newer_value_and_behind_it(world: World) -> None:
    node = world.values()
    world.value(node, "a1")
    world.settle()
    steps: list[str] = []
    log = world.store.shelves["prices"]
    append, forget = log.append, log.forget
    log.append = lambda *args: (steps.append(f"append {text(args[4])}"), append(*args))  # type: ignore[method-assign,assignment,func-returns-value]
    log.forget = lambda seq, nbytes: (steps.append("forget"), forget(seq, nbytes))  # type: ignore[method-assign,assignment,func-returns-value]
    group = world.store.group
    assert world.value(node, "a2") == constants.STORING
    assert (steps, world.store.group) == (["append a2", "forget"], group)


def test_a_value_that_is_not_durable_replaces_a_durable_one_everywhere(world: World) -> None:
    node = world.values()
    world.value(node, "a1")
    world.settle()
    world.value(node, "a2", durable=False)
    world.settle()
    world.check(node)
    assert (shown(node), world.kept()) == (["a2"], [])


@pytest.mark.parametrize("overflow", ["ring", "reject", "drop_newest"])
def test_at_a_hard_limit_a_newer_value_that_fits_replaces(world: World, overflow: str) -> None:
    node = world.values(flow_control=False, overflow=overflow, max_count=2)
    world.value(node, "a1", "b1", "a2", "b2", "a3")
    world.check(node)
    assert shown(node) == ["b2", "a3"]
    assert (node.dropped, node.refused, node.replaced) == (0, 0, 3)


def test_a_larger_value_of_a_ring_takes_the_room_of_others(world: World) -> None:
    size = len(valued("a1"))
    node = world.values(flow_control=False, overflow="ring", max_size=3 * size)
    world.value(node, "a1", "b1", "c1")
    world.value(node, "a2", pad=size)
    world.settle()
    world.check(node)
    assert shown(node) == ["c1", "a2"]
    world.value(node, "c2", pad=2 * size)
    world.settle()
    world.check(node)
    assert shown(node) == ["c2"]
    assert node.dropped + node.replaced == 4


def test_a_larger_value_that_is_refused_leaves_the_older_one(world: World) -> None:
    size = len(valued("a1"))
    node = world.values(flow_control=False, overflow="reject", max_size=2 * size)
    world.value(node, "a1", "b1")
    assert world.value(node, "a2", pad=size) == constants.REFUSED
    world.settle()
    world.check(node)
    assert (shown(node), node.refused, node.replaced) == (["a1", "b1"], 1, 0)
    world.value(node, "a3")
    assert shown(node) == ["b1", "a3"]


def test_the_room_of_the_older_value_is_free_in_the_same_turn(world: World) -> None:
    node = world.values(flow_stop_count=3, flow_resume_count=1)
    link = Link()
    account = world.engine.producers.open(node, link, True)
    world.turn()
    for number in range(50):
        for key in "ab":
            assert link.credit - account.used >= 1
            data = valued(f"{key}{number}")
            world.engine.intake.arrive(node, account, data, message.scan(data), False)
            gate = node.gate
            assert gate.depth_msgs + gate.promised_msgs <= 3
            world.settle()
            world.check(node)
    assert (node.gate.depth_msgs, node.gate.closed_count) == (2, 0)


def test_released_values_yield_and_rejected_ones_are_dead_letters(world: World) -> None:
    node = world.values(dead_letter_address="letters")
    letters = world.create("letters")
    world.value(node, "a1", "b1", "c1")
    window = world.consumer(node)
    assert [text(each.data) for each in window.got] == ["a1", "b1", "c1"]
    window.most = 0
    world.value(node, "a2", "b2")
    world.settle()
    a, b, c = window.got
    window.in_flight -= 3
    world.engine.settlement.requeue(node, a, True)
    world.engine.settlement.reject(node, b)
    world.engine.settlement.requeue(node, c, True)
    window.got.clear()
    world.settle()
    world.check(node)
    assert shown(node) == ["c1", "a2", "b2"]
    assert (node.replaced, letters.gate.depth_msgs) == (1, 1)


def test_a_value_that_failed_too_often_yields_rather_than_be_a_dead_letter(world: World) -> None:
    node = world.values(dead_letter_address="letters", max_delivery_count=1)
    letters = world.create("letters")
    world.value(node, "a1")
    window = world.consumer(node)
    window.most = 0
    world.value(node, "a2")
    window.in_flight -= 1
    world.engine.settlement.requeue(node, window.got.pop(), True)
    world.settle()
    world.check(node)
    assert (shown(node), letters.gate.depth_msgs) == (["a2"], 0)


def declare(world: World) -> Transaction:
    return world.engine.transactions.declare(b"t", Controller(), 0, 1 << 20)


@pytest.mark.parametrize("commits", [True, False])
def test_values_of_a_transaction_replace_when_it_commits(world: World, commits: bool) -> None:
    node = world.values(flow_stop_count=10)
    account = world.engine.producers.open(node, Link(), True)
    world.value(node, "a1", "b1")
    world.settle()
    begun = declare(world)
    for value in ("a2", "c1", "a3"):
        data = valued(value)
        world.engine.intake.arrive(node, account, data, message.scan(data), False, begun)
    world.turn()
    assert shown(node) == ["a1", "b1"]
    if commits:
        assert world.engine.transactions.commit(begun) == constants.STORING
    else:
        world.engine.transactions.roll_back(begun)
    world.settle()
    world.check(node)
    assert shown(node) == (["b1", "c1", "a3"] if commits else ["a1", "b1"])
    assert node.replaced == (2 if commits else 0)


@pytest.mark.parametrize(
    ("outcome", "commits", "left", "dead"),
    [
        (0x24, True, ["a2"], 0),
        (0x24, False, ["a2"], 0),
        (RELEASED, True, ["a2"], 0),
        (REJECTED, True, ["a2"], 1),
    ],
)
def test_a_retired_value_yields_at_a_rollback(
    world: World, outcome: int, commits: bool, left: list[str], dead: int
) -> None:
    node = world.values(dead_letter_address="letters")
    letters = world.create("letters")
    world.value(node, "a1")
    window = world.consumer(node)
    window.most = 0
    begun = declare(world)
    begun.retirements.append(Retirement(node, window.got[0], outcome))
    window.in_flight -= 1
    window.got.clear()
    world.value(node, "a2")
    if commits:
        world.engine.transactions.commit(begun)
    else:
        world.engine.transactions.roll_back(begun)
    world.settle()
    world.check(node)
    assert (shown(node), letters.gate.depth_msgs) == (left, dead)


def test_a_delayed_value_counts_from_its_time_on(world: World) -> None:
    node = world.values()
    world.value(node, "a1")
    world.value(node, "a9", delay_ms=500)
    world.settle()
    assert (shown(node), node.gate.depth_msgs) == (["a1"], 2)
    world.value(node, "a2")
    world.settle()
    assert (shown(node), node.gate.depth_msgs, node.replaced) == (["a2"], 2, 1)
    world.turn(500)
    world.turn()
    world.settle()
    world.check(node)
    assert (shown(node), node.replaced, world.kept(LOG_NAME + "prices")) == (["a9"], 2, [])


@pytest.mark.parametrize("newer", [True, False])
def test_a_value_that_waits_to_be_tried_again_yields_to_a_newer_one(world: World, newer: bool) -> None:
    node = world.values(redelivery_delay="1s")
    world.value(node, "a1")
    window = world.consumer(node)
    window.most = 0
    window.in_flight -= 1
    world.engine.settlement.requeue(node, window.got.pop(), True)
    world.settle()
    if newer:
        world.value(node, "a2")
    world.settle()
    world.check(node)
    world.turn(3000)
    world.turn()
    world.settle()
    world.check(node)
    assert shown(node) == (["a2"] if newer else ["a1"])
    assert node.replaced == int(newer)


def test_a_failed_value_that_yields_at_once_does_not_wait(world: World) -> None:
    node = world.values(redelivery_delay="1s")
    world.value(node, "a1")
    window = world.consumer(node)
    window.most = 0
    world.value(node, "a2")
    window.in_flight -= 1
    world.engine.settlement.requeue(node, window.got.pop(), True)
    world.settle()
    world.check(node)
    assert (shown(node), node.gate.depth_msgs) == (["a2"], 1)


def test_two_held_values_come_back_in_either_order(world: World) -> None:
    for order in ((0, 1), (1, 0)):
        world = World()
        node = world.values()
        window = world.consumer(node)
        world.value(node, "a1")
        world.settle()
        world.value(node, "a2")
        world.settle()
        held: list[Entry] = list(window.got)
        assert [text(each.data) for each in held] == ["a1", "a2"]
        window.most = 0
        for index in order:
            window.in_flight -= 1
            window.got.remove(held[index])
            world.engine.settlement.requeue(node, held[index], False)
            world.settle()
            world.check(node)
        assert shown(node) == ["a2"]


def test_each_subscription_keeps_its_own_last_values(world: World) -> None:
    topic = world.create("ticks", kind="topic")
    keeps = world.subscribe(topic, "keeps", last_value_key="share")
    takes = world.subscribe(topic, "takes")
    world.value(topic, "a1", "b1", "a2", durable=False)
    assert (shown(keeps), shown(takes)) == (["b1", "a2"], ["a1", "b1", "a2"])
    assert audit(world.engine).breaches == ()


def test_duplicates_do_not_replace(world: World) -> None:
    node = world.values(duplicate_window=10)
    for value, name in (("a1", "1"), ("a2", "2"), ("a1", "1")):
        made = Message(body=value, id=name, durable=True, properties={"share": "a"})
        data = bytes(made.encode())
        world.engine.intake.put(node, data, message.scan(data))
    world.settle()
    world.check(node)
    assert (shown(node), node.duplicated) == (["a2"], 1)


def test_a_replaced_value_expires_no_more(world: World) -> None:
    node = world.values(dead_letter_address="letters", dead_letter_expired=True)
    letters = world.create("letters")
    world.put(node, "old", durable=True, ttl=1.0, properties={"share": "a"})
    world.value(node, "a2")
    world.turn(2000)
    world.settle()
    world.check(node)
    assert (shown(node), letters.gate.depth_msgs, node.expired) == (["a2"], 0, 0)


def test_the_body_of_a_replaced_value_goes_once_that_is_on_disk(world: World) -> None:
    node = world.values()
    body = world.engine.large.embody(7, 1 << 20, 0, True)
    data = valued("a1")
    world.engine.intake.put(node, data, world.engine.large.bits_of(data, body))
    world.settle()
    assert node.gate.depth_bytes == len(data) + (1 << 20)
    world.value(node, "a2")
    assert (node.gate.depth_bytes, node.file_bytes, node.bodies, body.kept) == (len(data), 0, {}, 0)
    world.check(node)
    assert [key for key in world.store.notes if key.startswith("large/")] == []
    commit = world.engine.durability.commit
    assert commit is not None
    assert len(commit.waiters) == 1, "its file may go with the group"


def test_the_key_changes_only_while_the_queue_is_empty(world: World) -> None:
    node = world.create("prices", durable=True)
    world.value(node, "a1", "a2")
    world.settle()
    settings = world.create("other", last_value_key="share").settings
    assert settings is not None
    with pytest.raises(OperatorError, match="can't change while it has messages"):
        world.engine.configurator.change(node, settings)
    world.engine.actions.purge(node)
    world.engine.configurator.change(node, settings)
    world.value(node, "a3", "a4")
    world.settle()
    assert shown(node) == ["a4"]
    plain = world.create("plain").settings
    assert plain is not None
    world.engine.actions.purge(node)
    world.engine.configurator.change(node, plain)
    world.value(node, "a5", "a6")
    world.settle()
    assert shown(node) == ["a5", "a6"]
    assert audit(world.engine).breaches == ()


def test_a_move_of_values_replaces_at_the_target(world: World) -> None:
    node = world.values()
    source = world.create("source", durable=True)
    world.value(source, "a2", "b2")
    world.value(node, "a1", "c1")
    world.settle()
    world.engine.actions.move(source, node, 10)
    world.settle()
    world.settle()
    world.check(node)
    assert shown(node) == ["c1", "a2", "b2"]


KINDS: tuple[dict[str, str], ...] = (
    {"last_value_key": "share"},
    {"priority": "strict"},
    {"message_groups": "sticky"},
    {},
)


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_an_empty_queue_becomes_one_of_another_kind(
    world: World, first: dict[str, str], second: dict[str, str]
) -> None:
    node = world.create(**first)
    settings = world.create("other", **second).settings
    assert settings is not None
    world.engine.configurator.change(node, settings)
    world.value(node, "a1", "b1", "a2", durable=False)
    assert (node.last_values is node.queue) == (not node.takes_as_is) == ("last_value_key" in second)
    assert node.ordered == ("priority" in second)
    assert (node.queue.order is not None) == ("message_groups" in second)
    window = world.consumer(node)
    wanted = ["b1", "a2"] if "last_value_key" in second else ["a1", "b1", "a2"]
    assert [text(each.data) for each in window.got] == wanted
