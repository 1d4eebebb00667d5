"""Messages that are delivered later: when, at whose cost, and what the store keeps of them."""

from __future__ import annotations

import time

import pytest
from proton import Message, symbol

from broker import constants
from broker.codec import message
from broker.engine.annotations import add_annotations
from broker.engine.node import Node
from broker.engine.schedules import LOG_NAME, RELEASE_MSGS
from broker.manage.audit import audit
from broker.queues.queue import Entry, Extra
from tests.unit.engine.parts_world import EPOCH_MS, MS, PartsWorld

DELAY, TIME = "x-opt-delivery-delay", "x-opt-delivery-time"


class World(PartsWorld):
    """The parts' world, with messages that are delayed."""

    def delay(
        self, node: Node, delay_ms: int, body: str = "x", durable: bool = False, **fields: object
    ) -> int:
        annotations = {symbol(DELAY): delay_ms}
        data = bytes(Message(body=body, durable=durable, annotations=annotations, **fields).encode())
        return int(self.engine.intake.put(node, data, message.scan(data)))

    def check(self) -> None:
        assert audit(self.engine).breaches == ()


@pytest.fixture
def world() -> World:
    return World()


def body_of(entry: Entry) -> object:
    found = Message()
    found.decode(entry.data)
    return found.body


def test_a_message_is_delivered_at_its_time_and_not_before(world: World) -> None:
    node = world.create()
    window = world.consumer(node)
    world.delay(node, 500)
    world.put(node, "now")
    assert world.engine.next_deadline() == world.engine.turn.now_ns + 500 * MS
    world.turn(499)
    assert [body_of(each) for each in window.got] == ["now"]
    world.check()
    world.turn(1)
    world.turn()
    assert [body_of(each) for each in window.got] == ["now", "x"]
    assert world.engine.next_deadline() == 0
    world.check()


def test_those_that_are_due_come_by_time_at_the_end_of_the_queue(world: World) -> None:
    node = world.create()
    for delay_ms, body in ((30, "c"), (10, "a"), (20, "b")):
        world.delay(node, delay_ms, body)
    world.put(node, "first")
    world.turn(100)
    assert [body_of(each) for each in node.queue] == ["first", "a", "b", "c"]


def test_a_waiting_message_counts_against_the_limits_from_its_arrival(world: World) -> None:
    node = world.create(max_count=3, flow_stop_count=2, flow_resume_count=1)
    assert world.delay(node, 100) == constants.ACCEPTED
    assert not node.gate.closed
    world.delay(node, 100)
    assert (node.gate.depth_msgs, node.gate.closed) == (2, True)
    world.delay(node, 100)
    assert world.put(node) == constants.REFUSED
    world.turn(100)
    assert (node.gate.depth_msgs, node.gate.peak_msgs, node.queue.ready) == (3, 3, 3)
    world.check()


def test_one_that_expires_before_its_time_never_comes(world: World) -> None:
    node = world.create(dead_letter_address="grave")
    grave = world.create("grave")
    window = world.consumer(node)
    world.delay(node, 1000, ttl=0.5)
    world.delay(node, 1000, ttl=1)
    world.turn(499)
    assert node.expired == 0
    world.turn(1)
    assert (node.expired, grave.gate.depth_msgs) == (1, 1)
    world.turn(500)
    assert (node.expired, grave.queue.ready, window.got) == (2, 2, [])
    assert grave.schedule is None, "a dead letter isn't delayed"
    world.check()


def test_a_dead_letter_that_has_no_room_is_offered_again(world: World) -> None:
    node = world.create(dead_letter_address="grave")
    grave = world.create("grave", max_count=1)
    blocker = world.consumer(grave)
    blocker.most = 0
    world.put(grave)
    world.delay(node, 1000, ttl=0.5)
    world.turn(500)
    assert (node.expired, node.gate.depth_msgs) == (0, 1)
    world.engine.actions.purge(grave)
    world.turn(1000)
    assert (node.expired, node.gate.depth_msgs, grave.gate.depth_msgs) == (1, 0, 1)
    world.check()


def test_a_wave_is_released_a_part_a_turn(world: World) -> None:
    node = world.create()
    for _ in range(RELEASE_MSGS + 10):
        world.delay(node, 100)
    world.turn(100)
    assert node.queue.ready == RELEASE_MSGS
    assert 0 < world.engine.next_deadline() <= world.engine.turn.now_ns
    world.turn()
    assert node.queue.ready == RELEASE_MSGS + 10


def test_every_node_has_its_part_of_a_wave_in_time(world: World) -> None:
    nodes = [world.create(f"n{i}") for i in range(5)]
    for node in nodes:
        for delay_ms in (300, 100, 200):
            world.delay(node, delay_ms)
    for expected in (1, 2, 3):
        world.turn(100)
        assert [node.queue.ready for node in nodes] == [expected] * 5


def test_a_topic_s_subscriptions_delay_their_copies(world: World) -> None:
    topic = world.create("news", kind="topic")
    one, two = (world.subscribe(topic, name) for name in "ab")
    world.delay(topic, 100)
    assert [each.gate.depth_msgs for each in (one, two)] == [1, 1]
    assert [each.queue.ready for each in (one, two)] == [0, 0]
    world.turn(100)
    assert [each.queue.ready for each in (one, two)] == [1, 1]


def test_a_ring_drops_the_next_one_where_nothing_else_can_go(world: World) -> None:
    node = world.create(max_count=2, overflow="ring")
    for delay_ms, body in ((200, "b"), (100, "a")):
        world.delay(node, delay_ms, body)
    assert world.put(node, "new") == constants.ACCEPTED
    assert (node.gate.depth_msgs, node.dropped) == (2, 1)
    world.turn(200)
    assert [body_of(each) for each in node.queue] == ["new", "b"]
    world.check()


def test_purging_and_deleting_take_them_along(world: World) -> None:
    node = world.create(durable=True)
    world.settle()
    world.delay(node, 100, durable=True)
    world.delay(node, 100)
    world.settle()
    assert world.engine.actions.purge(node) == 2
    assert (node.gate.depth_msgs, node.stored_msgs, world.engine.depths.disk.depth_msgs) == (0, 0, 0)
    assert world.engine.depths.memory.depth_bytes == 0
    world.delay(node, 100, durable=True)
    world.check()
    world.engine.lifecycle.delete("orders")
    assert world.engine.depths.memory.depth_bytes == 0
    assert world.engine.depths.disk.depth_msgs == 0
    assert list(world.store.shelves) == []
    world.turn(200)
    assert world.engine.next_deadline() == 0


def test_one_is_cancelled_by_its_number(world: World) -> None:
    node = world.create()
    world.delay(node, 100, "a")
    world.delay(node, 200, "b")
    assert node.schedule is not None
    (first,) = node.schedule.first(0, 1)
    world.engine.schedules.cancel(node, first)
    assert (node.gate.depth_msgs, node.dropped) == (1, 1)
    world.turn(200)
    assert [body_of(each) for each in node.queue] == ["b"]
    world.check()


def test_a_durable_one_is_kept_with_its_time_until_it_is_in_its_queue(world: World) -> None:
    node = world.create(durable=True)
    world.settle()
    assert world.delay(node, 500, durable=True) == constants.STORING
    world.settle()
    log = world.store.shelves[LOG_NAME + "orders"]
    (record,) = log.messages.values()
    assert int.from_bytes(record[3][:8], "big") == EPOCH_MS + 1500
    assert world.store.shelves["orders"].messages == {}
    world.turn(500)
    # Both steps are one group: it is in both places or in neither.
    assert log.messages == {}
    assert len(world.store.shelves["orders"].messages) == 1
    assert node.queue.pending == 1
    world.settle()
    assert (node.queue.ready, node.stored_msgs) == (1, 1)
    world.check()


def test_a_restart_finds_them_waiting(world: World) -> None:
    node = world.create(durable=True)
    world.settle()
    world.delay(node, 500, "a", durable=True)
    world.delay(node, 900, "b", durable=True, ttl=10)
    world.settle()
    messages = [(seq, *rest) for seq, rest in world.store.shelves[LOG_NAME + "orders"].messages.items()]
    again = World()
    restored = again.create(durable=True)
    log = again.store.open_log(LOG_NAME + "orders", b"")
    again.engine.schedules.restore(restored, log, messages)
    assert (restored.gate.depth_msgs, restored.stored_msgs) == (2, 2)
    again.turn(499)
    assert restored.queue.pending == 0
    again.turn(1)
    assert restored.queue.pending == 1
    again.turn(400)
    again.settle()
    assert [body_of(each) for each in restored.queue] == ["a", "b"]
    assert [each.extra is not None and each.extra.expires_ns > 0 for each in restored.queue] == [False, True]
    again.check()


def test_a_move_takes_them_along_as_far_as_there_is_room(world: World) -> None:
    source, target = world.create("source"), world.create("target", max_count=3, flow_stop_count=3)
    world.put(source, "ready")
    for delay_ms in (300, 100, 200, 400):
        world.delay(source, delay_ms, str(delay_ms))
    assert world.engine.actions.move(source, target, 5) == 3
    world.settle()
    # The ready one and those that are due next, as the target's limit allows.
    assert (source.gate.depth_msgs, target.gate.depth_msgs) == (2, 3)
    assert source.schedule is not None
    assert [each.data[-3:] for each in source.schedule.first(0, 9)] == [b"300", b"400"]
    world.check()


def test_a_move_brings_no_waiting_message_that_its_target_knows_as_a_duplicate(world: World) -> None:
    source, target = world.create("source"), world.create("target", duplicate_window=10)
    world.put(target, "first", id="a")
    for name in ("a", "b", "b"):
        world.delay(source, 100, name, id=name)
    assert world.engine.actions.move(source, target, 3) == 3
    assert (source.gate.depth_msgs, target.gate.depth_msgs, target.duplicated) == (0, 2, 2)
    world.put(target, "again", id="b")
    assert target.duplicated == 3
    world.turn(100)
    assert [body_of(each) for each in target.queue] == ["first", "b"]
    world.check()


def test_a_moved_message_that_waits_goes_over_its_target_s_bridges(world: World) -> None:
    source, target, copies = (world.create(name) for name in ("source", "target", "copies"))
    world.engine.topology.bridging.add(target, copies)
    world.delay(source, 100)
    world.engine.actions.move(source, target, 1)
    assert [node.gate.depth_msgs for node in (source, target, copies)] == [0, 1, 1]
    world.check()


def test_a_move_takes_along_what_a_consumer_added_to_a_message_that_waits(world: World) -> None:
    source, target = world.create("source", redelivery_delay="1s"), world.create("target")
    data = bytes(Message(body="x", annotations={symbol("by"): "sender"}).encode())
    world.engine.intake.put(source, data, message.scan(data))
    (entry,) = held(world, source)
    add_annotations(entry, message.annotations_of(bytes(Message(annotations={symbol("by"): "me"}).encode())))
    world.engine.settlement.requeue(source, entry, True)
    assert source.schedule is not None
    assert source.schedule.count == 1
    assert world.engine.actions.move(source, target, 1) == 1
    world.turn(1000)
    (moved,) = target.queue
    found = Message()
    found.decode(moved.data)
    assert found.annotations is not None
    assert found.annotations[symbol("by")] == "me"
    world.check()


# --- tried again later


def held(world: World, node: Node) -> list[Entry]:
    window = world.consumer(node)
    world.turn()
    return window.got


def test_a_failed_delivery_waits_and_others_pass_it(world: World) -> None:
    node = world.create(redelivery_delay="1s", redelivery_multiplier=2, max_redelivery_delay="3s")
    got = held(world, node)
    for body in "abc":
        world.put(node, body)
    world.turn()
    assert [body_of(each) for each in got] == ["a", "b", "c"]
    world.engine.settlement.requeue(node, got.pop(0), True)
    world.turn(999)
    assert [body_of(each) for each in got] == ["b", "c"]
    world.check()
    world.turn(1)
    world.turn()
    again = got.pop()
    assert (body_of(again), again.delivery_count, bool(again.redelivered)) == ("a", 1, True)
    for expected_ms in (2000, 3000, 3000):
        world.engine.settlement.requeue(node, again, True)
        world.turn(expected_ms - 1)
        assert len(got) == 2
        world.turn(1)
        world.turn()
        again = got.pop()
    world.check()


def test_one_that_is_merely_released_or_spared_comes_back_at_once(world: World) -> None:
    node = world.create(redelivery_delay="1s")
    got = held(world, node)
    world.put(node)
    world.turn()
    world.engine.settlement.requeue(node, got.pop(), False)
    world.turn()
    assert len(got) == 1
    world.engine.settlement.spare(node, got.pop())
    world.turn()
    assert len(got) == 1


def test_the_last_failure_makes_a_dead_letter_without_delay(world: World) -> None:
    node = world.create(redelivery_delay="1s", max_delivery_count=2, dead_letter_address="grave")
    grave = world.create("grave")
    got = held(world, node)
    world.put(node)
    world.turn()
    world.engine.settlement.requeue(node, got.pop(), True)
    world.turn(1000)
    world.turn()
    world.engine.settlement.requeue(node, got.pop(), True)
    assert (node.gate.depth_msgs, grave.gate.depth_msgs) == (0, 1)


def test_a_receiver_says_itself_when_it_wants_a_message_again(world: World) -> None:
    node = world.create(redelivery_delay="1h")
    got = held(world, node)
    world.put(node)
    world.turn()
    entry = got.pop()
    entry.extra = Extra()
    annotations = {symbol(TIME): EPOCH_MS + world.engine.turn.now_ns // MS + 200}
    entry.extra.annotations = message.annotations_of(bytes(Message(annotations=annotations).encode()))
    world.engine.settlement.requeue(node, entry, True)
    world.turn(199)
    assert got == []
    world.turn(1)
    world.turn()
    assert len(got) == 1
    world.engine.settlement.requeue(node, got.pop(), False)
    world.turn()
    assert len(got) == 1, "its time is over"


def test_a_durable_one_keeps_its_count_and_its_time(world: World) -> None:
    node = world.create(durable=True, redelivery_delay="1s")
    world.settle()
    got = held(world, node)
    world.put(node, durable=True)
    world.settle()
    world.engine.settlement.requeue(node, got.pop(), True)
    world.settle()
    assert world.store.shelves["orders"].messages == {}
    (record,) = world.store.shelves[LOG_NAME + "orders"].messages.values()
    assert record[1] == 1
    world.turn(1000)
    world.settle()
    (record,) = world.store.shelves["orders"].messages.values()
    assert record[1] == 1
    assert [each.delivery_count for each in got] == [1]
    world.check()


@pytest.mark.parametrize("priority", ["none", "strict", "fair"])
def test_a_consumer_for_whom_it_is_undeliverable_does_not_get_it_later_either(
    world: World, priority: str
) -> None:
    node = world.create(redelivery_delay="1s", priority=priority)
    window = world.consumer(node)
    world.put(node)
    world.turn()
    entry = window.got.pop()
    node.queue.forbid(entry, window)
    world.engine.settlement.requeue(node, entry, True)
    world.turn(1000)
    world.turn()
    assert (window.got, node.queue.ready) == ([], 1)
    other = world.consumer(node)
    world.turn()
    assert len(other.got) == 1
    world.engine.settlement.acknowledge(node, other.got.pop())
    assert node.queue.picky == 0


@pytest.mark.flow
def test_a_million_cost_consumers_nothing(world: World) -> None:
    """A hundred thousand of them here: a message that comes and goes touches none of them."""
    node = world.create(max_size="1 GB")
    for _ in range(100_000):
        world.delay(node, 3_600_000)
    got = held(world, node)
    begun = time.process_time()
    for _ in range(1000):
        world.put(node)
        world.turn()
        world.engine.settlement.acknowledge(node, got.pop())
    assert time.process_time() - begun < 2
