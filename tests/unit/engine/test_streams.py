"""Streams in the engine: what is counted, when readers see a message, and what is read from disk for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from proton import Message

from broker import constants
from broker.codec import message
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.manage.audit import audit
from broker.queues.queue import Reader
from broker.queues.stream import TAIL_BYTES
from broker.store.memory import MemoryQueueLog, MemoryStore
from broker.store.port import OffsetGone, QueueLog, StreamLog
from tests.unit.engine.parts_world import Link, PartsWorld, Window
from tests.unit.engine.test_transaction import Controller


class LogReader:
    def __init__(self, log: Log, offset: int) -> None:
        self.log, self.offset = log, offset
        self.closed = False

    def read(self, most_bytes: int) -> list[tuple[int, int, bytes]]:
        if self.log.fault is not None:
            raise self.log.fault
        if self.offset < self.log.first:
            raise OffsetGone(self.offset, self.log.first)
        found: list[tuple[int, int, bytes]] = []
        while self.offset < self.log.appended and sum(len(each[2]) for each in found) < most_bytes:
            _, _, time_ms, data = self.log.inner.messages[self.offset + 1]
            found.append((self.offset, time_ms, data))
            self.offset += 1
        return found

    def seek(self, offset: int) -> None:
        self.offset = offset

    def close(self) -> None:
        self.closed = True


class Log(StreamLog):
    """A stream's log in memory; ``appended`` says how far it can be read."""

    def __init__(self, inner: MemoryQueueLog) -> None:
        self.inner = inner
        self.first = self.appended = 0
        self.fault: Exception | None = None
        self.kept = (0, 0, 0)
        self.held_from = -1

    @property
    def first_offset(self) -> int:
        return self.first

    @property
    def next_offset(self) -> int:
        return self.appended

    @property
    def nbytes(self) -> int:
        return sum(len(self.inner.messages[at + 1][3]) for at in range(self.first, len(self.inner.messages)))

    def append(self, seq: int, flags: int, delivery_count: int, expires_ms: int, data: bytes) -> None:
        self.inner.append(seq, flags, delivery_count, expires_ms, data)

    def limit(self, most_bytes: int, most_count: int, age_ms: int) -> None:
        self.kept = (most_bytes, most_count, age_ms)

    def hold(self, offset: int) -> None:
        self.held_from = offset

    def reader(self, offset: int) -> LogReader:
        return LogReader(self, offset)

    def count_bytes(self, offset: int, end: int, most_bytes: int) -> tuple[int, int]:
        if self.fault is not None:
            raise self.fault
        if offset < self.first:
            raise OffsetGone(offset, self.first)
        # A part at a time, as a long log is counted.
        upto = min(end, offset + 7)
        return upto, sum(len(self.inner.messages[at + 1][3]) for at in range(offset, upto))

    def find(self, time_ms: int) -> int:
        times = [self.inner.messages[at + 1][2] for at in range(self.appended)]
        return next((at for at, each in enumerate(times) if each >= time_ms), self.appended)


class StreamStore(MemoryStore):
    """A store in memory that keeps streams, too."""

    def open_stream(self, name: str, definition: bytes) -> StreamLog:
        inner = self.open_log(name, definition)
        assert isinstance(inner, MemoryQueueLog)
        self.log = Log(inner)
        return self.log

    def remove(self, shelf: QueueLog) -> None:
        super().remove(shelf.inner if isinstance(shelf, Log) else shelf)


class Pager:
    """Reads when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], object], Callable[[object], None]]] = []

    def run(self, job: Callable[[], object], done: Callable[[object], None]) -> None:
        self.jobs.append((job, done))

    def work(self) -> None:
        job, done = self.jobs.pop(0)
        try:
            answer = job()
        except (OSError, OperatorError) as fault:
            answer = fault
        done(answer)


class Watcher(Window):
    """A reader with endless credit; ``faults`` are what it was told."""

    def __init__(self, world: World, node: Node, start: str, value: int) -> None:
        Window.__init__(self, 1 << 30)
        self.faults: list[str] = []
        self.reader = Reader(self, None, True)
        world.engine.streams.begin(self.reader, start, value)
        world.engine.delivery.add_browser(node, self)

    def unreadable(self, reason: str) -> None:
        self.faults.append(reason)

    @property
    def offsets(self) -> list[int]:
        return [each.seq - 1 for each in self.got]


class World(PartsWorld):
    """An engine whose store keeps streams, with a pager that waits."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.streams_store = StreamStore()
        self.engine = Engine(True, self.store)
        self.engine.turn.epoch_ns = 1_700_000_000_000 * 1_000_000
        self.pager = Pager()
        self.engine.streams.pager = self.pager
        self.engine.begin_turn(1_000_000_000)

    def stream(self, **given: object) -> Node:
        return self.create("flights", kind="stream", **{"durable": True, **given})

    def watch(self, node: Node, start: str = "first", value: int = 0) -> Watcher:
        return Watcher(self, node, start, value)

    def work(self) -> None:
        """Let the disk answer, until nobody asks for more."""
        self.turn()
        while self.pager.jobs:
            self.pager.work()
            self.turn()

    def append(self) -> None:
        self.streams_store.log.appended = len(self.streams_store.log.inner.messages)


@pytest.fixture
def world() -> World:
    return World()


def test_a_message_is_seen_once_it_is_stored(world: World) -> None:
    node = world.stream()
    watcher = world.watch(node)
    assert world.put(node, "a", durable=True) == constants.STORING
    assert world.put(node, "b") == constants.ACCEPTED
    world.engine.end_turn()
    assert watcher.offsets == []
    world.settle()
    assert watcher.offsets == [0, 1]
    # What isn't durable is kept all the same: there are no holes.
    assert sorted(world.streams_store.log.inner.messages) == [1, 2]
    assert (node.received, node.delivered, node.stored_msgs) == (2, 0, 2)
    assert audit(world.engine).breaches == ()


def test_without_a_store_it_is_seen_at_once() -> None:
    world = PartsWorld()
    node = world.create("flights", kind="stream", max_count=3)
    for at in range(5):
        assert world.put(node, str(at), durable=True) == constants.ACCEPTED
    world.turn()
    assert node.stream is not None
    assert (node.stream.first_offset, node.stream.count) == (2, 3)


def test_what_left_memory_is_read_from_disk_for_each_reader(world: World) -> None:
    node = world.stream()
    body = "x" * 20_000
    count = 2 * TAIL_BYTES // 20_000
    for _ in range(count):
        world.put(node, body)
    world.settle()
    world.append()
    world.put(node, body)
    world.settle()
    assert node.stream is not None
    assert node.stream.tail_first > 0
    readers = [world.watch(node), world.watch(node, "offset", 5), world.watch(node, "last")]
    world.work()
    assert [each.offsets for each in readers] == [
        *(list(range(count + 1)), list(range(5, count + 1)), [count])
    ]


def test_a_reader_that_has_come_to_memory_lets_go_of_the_file(world: World) -> None:
    node = world.stream()
    for _ in range(10):
        world.put(node)
    world.settle()
    world.append()
    assert node.stream is not None
    node.stream.trim(0)
    watcher = world.watch(node)
    world.work()
    assert watcher.reader is not None
    opened = watcher.reader.run.disk
    assert opened is not None
    world.put(node)
    world.settle()
    world.work()
    assert watcher.offsets == list(range(11))
    assert (watcher.reader.run.disk, opened.closed) == (None, True)


def test_what_retention_lets_go_of_gives_room_though_nobody_may_send(world: World) -> None:
    node = world.stream()
    disk = world.engine.depths.disk
    for _ in range(10):
        world.put(node, "x" * 1000)
    world.settle()
    world.append()
    world.engine.limit(0, disk.depth_bytes)
    link = Link()
    world.engine.producers.open(node, link, True)
    world.turn()
    assert (disk.closed, link.credit) == (True, 0)
    world.streams_store.log.first = 9
    world.engine.sampler.sample(world.engine.turn.now_ns)
    world.turn()
    world.turn()
    assert (disk.closed, node.stored_msgs) == (False, 1)
    assert link.credit > 0


def test_messages_are_stamped_by_the_clock_as_it_is_set_now_and_never_before_others(world: World) -> None:
    node = world.stream()
    world.put(node)
    turn = world.engine.turn
    for set_by_s in (86_400, -86_400):
        turn.clock_set_ns = set_by_s * 1_000_000_000
        world.put(node)
    world.settle()
    times = [each[2] for each in world.streams_store.log.inner.messages.values()]
    assert times[1] == times[0] + 86_400_000
    assert times[2] == times[1]


def test_memory_is_counted_and_given_back(world: World) -> None:
    node = world.stream()
    before = world.engine.depths.memory.depth_bytes
    for _ in range(100):
        world.put(node, "x" * 1000)
    assert world.engine.depths.memory.depth_bytes > before + 100_000
    world.settle()
    world.engine.lifecycle.delete("flights")
    assert world.engine.depths.memory.depth_bytes == before
    assert (world.engine.depths.disk.depth_msgs, world.engine.streams.nodes) == (0, set())


def test_where_memory_is_short_the_tail_leaves_it(world: World) -> None:
    node = world.stream()
    world.engine.limit(200_000, 0)
    for _ in range(150):
        world.put(node, "x" * 1000)
    world.settle()
    assert node.stream is not None
    world.append()
    world.turn(20)
    world.turn()
    assert (node.stream.tail_first, node.stream.tail_bytes) == (150, 0)
    assert world.engine.depths.memory.depth_bytes == 0
    reader = world.watch(node)
    world.work()
    assert reader.offsets == list(range(150))


def test_what_was_read_from_disk_is_counted_in_memory(world: World) -> None:
    node = world.stream()
    for _ in range(100):
        world.put(node, "x" * 1000)
    world.settle()
    world.append()
    assert node.stream is not None
    node.stream.trim(0)
    world.engine.limit(1_000_000, 0)
    memory = world.engine.depths.memory
    reader = world.watch(node)
    reader.most = 10
    world.work()
    world.turn()
    assert memory.depth_bytes == node.stream.loaded_bytes > 90 * 1000
    reader.most = 1 << 30
    world.engine.turn.mark_dirty(node)
    world.work()
    world.turn()
    assert reader.offsets == list(range(100))
    assert memory.depth_bytes == 0


def test_an_offset_that_is_gone_begins_with_what_there_is(world: World) -> None:
    node = world.stream()
    for _ in range(10):
        world.put(node)
    world.settle()
    world.append()
    assert node.stream is not None
    node.stream.trim(0)
    reader = world.watch(node)
    world.turn()
    world.streams_store.log.first = 4
    world.work()
    assert reader.offsets == list(range(4, 10))


def test_a_disk_that_cannot_be_read_is_told_the_reader(world: World) -> None:
    node = world.stream()
    for _ in range(10):
        world.put(node)
    world.settle()
    world.append()
    assert node.stream is not None
    node.stream.trim(0)
    world.streams_store.log.fault = OSError(5, "Input/output error")
    reader = world.watch(node)
    world.work()
    assert reader.faults == ["[Errno 5] Input/output error"]
    assert reader.offsets == []


def test_a_reader_that_left_while_the_disk_read_for_it(world: World) -> None:
    node = world.stream()
    for _ in range(10):
        world.put(node)
    world.settle()
    world.append()
    assert node.stream is not None
    node.stream.trim(0)
    reader = world.watch(node)
    world.turn()
    assert reader.reader is not None
    cursor = reader.reader.run
    world.engine.delivery.remove_browser(node, reader)
    world.work()
    assert (reader.offsets, cursor.disk.closed) == ([], True)


def test_a_time_is_looked_up_on_disk_and_what_came_since_in_memory(world: World) -> None:
    node = world.stream()
    for _ in range(4):
        world.put(node)
        world.settle()
        world.turn(1000)
    world.append()
    assert node.stream is not None
    node.stream.trim(0)
    wall_ms = world.engine.turn.wall_ms()
    readers = [world.watch(node, "time", wall_ms - ms) for ms in (2500, 100, 1 << 40)]
    world.work()
    assert [each.offsets for each in readers] == [[2, 3], [], [0, 1, 2, 3]]


def test_a_large_message_is_refused(world: World) -> None:
    node = world.stream()
    code = world.engine.intake.put(node, b"\x00\x53\x77\xa0\x01x", 1 << constants.LARGE_SHIFT)
    assert (code, node.refused, node.received) == (constants.REFUSED, 1, 0)


LARGE_HEAD = b"\x00\x53\x70\xc0\x02\x01\x41"


def test_a_large_message_to_a_topic_with_a_stream_comes_to_nobody(world: World) -> None:
    node, orders, topic = world.stream(), world.create("orders"), world.create("news", kind="topic")
    body = world.engine.large.embody(7, 1 << 20, 0, True)
    bits = world.engine.large.bits_of(LARGE_HEAD, body)
    for each in (orders, node):
        world.engine.topology.bind(topic, each)
    account = world.engine.producers.open(topic, Link(), True)
    world.turn()
    begun = world.engine.transactions.declare(b"t", Controller(), 0, 1 << 30)
    granted = account.granted
    codes = [
        world.engine.intake.arrive(topic, account, LARGE_HEAD, bits, False),
        world.engine.intake.arrive(topic, account, LARGE_HEAD, bits, False, begun),
        # As a message is put in that had been parked before the stream was bound.
        world.engine.intake.put(topic, LARGE_HEAD, bits),
    ]
    assert codes == [constants.REFUSED] * 3
    assert (topic.refused, topic.received, node.dropped, orders.received) == (3, 0, 0, 0)
    assert (account.used, begun.posts, account.granted >= granted) == (2, [], True)
    assert audit(world.engine).breaches == ()


def test_a_transaction_with_a_large_message_fails_where_a_stream_was_bound_since(world: World) -> None:
    node, orders, topic = world.stream(), world.create("orders"), world.create("news", kind="topic")
    body = world.engine.large.embody(7, 1 << 20, 0, True)
    bits = world.engine.large.bits_of(LARGE_HEAD, body)
    world.engine.topology.bind(topic, orders)
    account = world.engine.producers.open(topic, Link(), True)
    world.turn()
    begun = world.engine.transactions.declare(b"t", Controller(), 0, 1 << 30)
    code = world.engine.intake.arrive(topic, account, LARGE_HEAD, bits, False, begun)
    assert code == constants.ACCEPTED
    world.engine.topology.bind(topic, node)
    assert world.engine.transactions.commit(begun) == constants.REFUSED
    assert "too large" in begun.fault
    assert (orders.received, node.dropped) == (0, 0)


def test_a_large_dead_letter_for_a_stream_is_dropped_and_counted_and_holds_up_no_other(world: World) -> None:
    letters = world.stream()
    source = world.create("orders", dead_letter_address="flights")
    world.engine.letters.find = lambda _: letters
    body = world.engine.large.embody(7, 1 << 20, 0, True)
    world.engine.intake.put(source, LARGE_HEAD, world.engine.large.bits_of(LARGE_HEAD, body))
    world.put(source, "small")
    consumer = world.consumer(source)
    world.turn()
    assert len(consumer.got) == 2
    for entry in consumer.got:
        world.engine.settlement.reject(source, entry)
    world.settle()
    assert (source.dropped, source.dead_lettered, source.gate.depth_msgs) == (1, 1, 0)
    assert letters.received == 1


def test_a_topic_and_a_bridge_feed_a_stream(world: World) -> None:
    node = world.stream()
    topic, source = world.create("news", kind="topic"), world.create("orders")
    world.engine.topology.bind(topic, node)
    world.engine.topology.bridging.add(source, node, None)
    world.put(topic, "a", durable=True)
    world.put(source, "b", durable=True)
    # Behind what waits for the disk.
    world.engine.intake.put_behind(node, bytes(Message(body="c").encode()))
    world.settle()
    world.settle()
    reader = world.watch(node)
    world.turn()
    bodies = []
    for each in reader.got:
        found = Message()
        found.decode(each.data)
        bodies.append(found.body)
    assert bodies == ["a", "b", "c"]


def test_a_producer_has_credit_however_much_there_is(world: World) -> None:
    node = world.stream()
    link = Link()
    account = world.engine.producers.open(node, link, True)
    account.origin = None
    data = bytes(Message(body="x", durable=True).encode())
    bits = message.scan(data)
    for _ in range(3000):
        world.turn()
        assert link.credit > 0
        link.credit -= 1
        world.engine.intake.arrive(node, account, data, bits, False)
        world.settle()
    assert audit(world.engine).breaches == ()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"priority": "strict"}, "no priority"),
        ({"priority_reserve": 10}, "no priority_reserve"),
        ({"priority_reserve_from": 7}, "no priority_reserve_from"),
        ({"message_groups": "sticky"}, "no message_groups"),
        ({"group_key": "customer", "message_groups": "none"}, "no group_key|disagree"),
        ({"group_first_key": "first"}, "no group_first_key"),
        ({"group_rebalance": True}, "no group_rebalance"),
        ({"group_max_idle": 5}, "no group_max_idle"),
        ({"last_value_key": "share"}, "no last_value_key"),
        ({"last_value_position": "kept"}, "no last_value_position"),
        ({"duplicate_window": 10}, "no duplicate_window"),
        ({"duplicate_window": "10m"}, "no duplicate_window"),
        ({"message_ttl": "1s"}, "no message_ttl"),
        ({"max_ttl": "1s"}, "no max_ttl"),
        ({"redelivery_delay": "1s"}, "no redelivery_delay"),
        ({"redelivery_multiplier": 2}, "no redelivery_multiplier"),
        ({"max_redelivery_delay": "1m"}, "no max_redelivery_delay"),
        ({"redelivery_jitter": 10}, "no redelivery_jitter"),
        ({"dead_letter_expired": True, "dead_letter_address": "dead"}, "no dead_letter_expired"),
        ({"pending_message_limit": 10}, "no pending_message_limit"),
        ({"non_destructive": True}, "no non_destructive"),
        ({"consumers": "exclusive"}, "no consumers: exclusive"),
        ({"consumers": "single_active"}, "no consumers: single_active"),
        ({"dispatch": "fill"}, "no dispatch: fill"),
        ({"slow_consumer": "10/s for 30s detach"}, "no slow_consumer"),
        ({"consumer_timeout": "30s"}, "no consumer_timeout"),
        ({"overflow": "page"}, "no overflow but ring: its oldest messages go"),
        ({"kind": "topic", "queue_type": "stream"}, "a topic can't be a stream"),
    ],
)
@pytest.mark.parametrize("partitions", [0, 2])
def test_what_a_stream_cannot_have_is_refused(
    world: World, wrong: dict[str, object], why: str, partitions: int
) -> None:
    with pytest.raises(OperatorError, match=f"{why}$"):
        world.create("flights", **{"kind": "stream", "partitions": partitions, **wrong})


def test_what_takes_nothing_from_a_stream_is_taken(world: World) -> None:
    plain = {"consumers": "shared", "dispatch": "adaptive", "consumer_timeout": 0, "non_destructive": False}
    given = {
        "slow_consumer": "",
        "group_max_idle": 10_000,
        "dead_letter_address": "dead",
        "when_full": "reject",
    }
    world.create("flights", **{"kind": "stream", **plain, **given})


def test_it_stays_what_it_is(world: World) -> None:
    node, queue = world.stream(), world.create("orders")
    with pytest.raises(OperatorError, match="'flights' is a stream and can't become a queue"):
        world.engine.configurator.change(node, queue.settings)
    with pytest.raises(OperatorError, match="'orders' is a queue and can't become a stream"):
        world.engine.configurator.change(queue, node.settings)


def test_a_store_that_keeps_no_streams_says_so() -> None:
    world = PartsWorld()
    with pytest.raises(OperatorError, match="keeps none"):
        world.create("flights", kind="stream", durable=True)
    assert "flights" not in world.engine.topology.nodes


def test_new_limits_reach_the_log(world: World) -> None:
    node = world.stream(max_count=10)
    log = world.streams_store.log
    assert log.kept == (0, 10, 0)
    other = world.create("other", kind="stream", durable=True, max_size="1MB", max_age="1h")
    world.engine.configurator.change(node, other.settings)
    assert log.kept == (1 << 20, 0, 3_600_000)
