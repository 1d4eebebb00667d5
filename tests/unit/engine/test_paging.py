"""Nodes that page, with a real temporary store: what leaves memory, when, and that all of it comes back."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proton import Message, symbol

from broker.codec import message
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine import spool as spool_room
from broker.engine.annotations import add_annotations
from broker.engine.engine import Engine
from broker.engine.node import Node, memory_of
from broker.engine.paging import PAGE_PERCENT
from broker.flow.producer_credit import Port
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry
from broker.store.memory import MemoryStore
from broker.store.pager import TEMP, Pager
from broker.store.port import REDELIVERED

MS = 1_000_000
MB = 1 << 20
# A disk that others write to as well takes its time.
PATIENCE_S = 60.0


class Sender(Port):
    """A link that counts its credit."""

    def __init__(self) -> None:
        self.credit = 0

    def grant(self, msgs: int) -> None:
        self.credit += msgs

    def revoke(self, msgs: int) -> None:
        self.credit -= msgs


class Taker(Consumer):
    """A consumer with a window; ``got`` is what it holds."""

    def __init__(self, window: int) -> None:
        Consumer.__init__(self)
        self.window = window
        self.got: list[Entry] = []

    def capacity(self) -> int:
        return self.window - len(self.got)

    def send(self, entry: Entry) -> None:
        self.got.append(entry)
        self.in_flight += 1


class World:
    """An engine with a pager whose answers come in turns."""

    def __init__(self, folder: Path) -> None:
        self.inbox: deque[Callable[[], None]] = deque()
        self.store = MemoryStore()
        self.engine = Engine(True, self.store)
        self.engine.turn.epoch_ns = 1_700_000_000_000 * MS
        self.engine.begin_turn(1000 * MS)
        self.pager = Pager(folder, self.inbox.append)
        self.engine.paging.pager = self.pager

    def create(self, name: str, **given: object) -> Node:
        return self.engine.lifecycle.create(
            name, resolve({"overflow": "page", **given}, BrokerDefaults()), b"{}"
        )

    def put(self, node: Node, count: int, size: int = 1000, **fields: object) -> None:
        """Messages numbered from the last one on, each in a turn."""
        for number in range(node.received, node.received + count):
            data = bytes(Message(body=bytes(size), id=number, **fields).encode())
            self.engine.intake.put(node, data, message.scan(data))
            self.turn()

    def turn(self, ms: int = 0) -> None:
        self.engine.begin_turn(self.engine.turn.now_ns + ms * MS)
        for _ in range(len(self.inbox)):
            self.inbox.popleft()()
        self.engine.seal()
        self.engine.attend_store()
        self.engine.end_turn()
        self.engine.seal()

    def until(self, condition: Callable[[], bool]) -> None:
        """Turn until it holds; the disk takes its time."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "it never came to be"
            self.turn()

    def second(self) -> None:
        """What happens once a second."""
        self.turn(1000)
        self.engine.sampler.sample(self.engine.turn.now_ns)
        self.turn()

    def drain(self, node: Node, window: int = 100) -> list[object]:
        """Everything, settled in batches: the numbers as they come."""
        taker = Taker(window)
        self.engine.delivery.add_consumer(node, taker)
        numbers: list[object] = []
        left = node.gate.depth_msgs
        while left:
            self.until(lambda: bool(taker.got))
            got, taker.got = taker.got, []
            left -= len(got)
            for entry in got:
                numbers.append(number_of(entry))
                self.engine.settlement.acknowledge(node, entry)
            self.engine.turn.mark_dirty(node)
            self.turn()
        self.engine.delivery.remove_consumer(node, taker)
        self.turn()
        return numbers

    def held(self, node: Node) -> int:
        return int(memory_of(node))


def number_of(entry: Entry) -> object:
    decoded = Message()
    decoded.decode(entry.data)
    return decoded.id


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.pager.close()


def paged(node: Node) -> int:
    assert node.spool is not None
    return int(node.spool.count)


def test_a_deep_backlog_stays_below_its_limit_and_comes_back_in_order(world: World) -> None:
    node = world.create("deep", memory_limit=4 * MB)
    world.put(node, 10_000)
    assert world.held(node) <= 4 * MB * PAGE_PERCENT // 100 + MB
    assert paged(node) > 5_000
    assert node.gate.depth_msgs == 10_000
    world.until(lambda: world.engine.paging.passing_bytes == 0)
    assert world.engine.depths.memory.depth_bytes == world.held(node)
    assert world.drain(node) == list(range(10_000))
    assert (world.engine.depths.memory.depth_bytes, world.engine.depths.memory.depth_msgs) == (0, 0)
    assert (node.gate.depth_bytes, world.engine.depths.temp.depth_bytes) == (0, 0)
    world.until(lambda: world.pager.used_bytes == 0)


def test_large_messages_are_counted_by_their_bytes(world: World) -> None:
    node = world.create("large", memory_limit=8 * MB)
    world.put(node, 60, MB)
    assert world.held(node) <= 8 * MB
    assert paged(node) >= 50
    # What is on its way to a slow disk is in memory still.
    world.until(lambda: world.engine.paging.passing_bytes == 0)
    most = 0
    taker = Taker(1)
    world.engine.delivery.add_consumer(node, taker)
    for number in range(60):
        world.until(lambda: bool(taker.got))
        entry = taker.got.pop()
        assert number_of(entry) == number
        world.engine.settlement.acknowledge(node, entry)
        world.engine.turn.mark_dirty(node)
        world.turn()
        most = max(most, int(world.engine.depths.memory.depth_bytes))
    assert most <= 16 * MB


def test_little_is_not_worth_a_run(world: World) -> None:
    node = world.create("deep", memory_limit=1 * MB)
    taker = Taker(5_000)
    world.engine.delivery.add_consumer(node, taker)
    world.put(node, 5_000)
    assert world.held(node) > MB, "the consumer holds it all"
    for _ in range(3):
        world.put(node, 1)
    assert paged(node) == 0


def test_what_one_consumer_gives_back_waits_in_front_of_what_another_holds(world: World) -> None:
    node = world.create("deep", memory_limit=1 * MB)
    one, other = Taker(3_000), Taker(3_000)
    world.engine.delivery.add_consumer(node, one)
    world.put(node, 3_000)
    world.engine.delivery.add_consumer(node, other)
    world.put(node, 3_000)
    world.engine.delivery.remove_consumer(node, one)
    for entry in one.got:
        world.engine.settlement.requeue(node, entry, True)
    other.window = 0
    world.put(node, 3_000)
    assert paged(node) > 0
    world.engine.delivery.remove_consumer(node, other)
    for entry in other.got:
        world.engine.settlement.requeue(node, entry, True)
    assert world.drain(node) == list(range(9_000))


def test_the_largest_makes_room_first(world: World) -> None:
    world.engine.limit(10 * MB, 0)
    large, small = world.create("large"), world.create("small")
    world.put(large, 4_500)
    world.put(small, 1_000)
    assert (paged(large), paged(small)) == (0, 0)
    plain = world.create("plain", overflow="reject")
    world.put(plain, 2_000)
    assert paged(large) > 0
    assert paged(small) == 0
    assert world.drain(large) == list(range(4_500))


def test_who_waits_for_memory_is_not_held_up_by_a_full_temporary_store(world: World) -> None:
    world.engine.limit(8 * MB, 0, MB)
    paging, plain = world.create("paging", memory_limit=MB), world.create("plain", overflow="reject")
    world.put(paging, 3_000)
    assert world.engine.depths.temp.room(1000) == 0
    world.put(plain, 6_000)
    sender = Sender()
    world.engine.producers.open(world.create("other", overflow="reject"), sender, True)
    world.turn()
    assert sender.credit == 0
    assert len(world.drain(plain)) == 6_000
    assert sender.credit > 0


def test_what_a_full_disk_refuses_stays_in_memory_and_stops_producers(tmp_path: Path) -> None:
    (tmp_path / TEMP).mkdir()
    (tmp_path / TEMP / "runs").symlink_to("/dev/full")
    world = World(tmp_path)
    node = world.create("deep", memory_limit=MB)
    sender = Sender()
    world.engine.producers.open(node, sender, True)
    world.turn()
    assert sender.credit > 0
    world.put(node, 5_000)
    world.until(lambda: node.spool is not None and node.spool.write_fault is not None)
    world.turn()
    assert sender.credit == 0
    assert "'deep' can't be paged: [Errno " in world.engine.paging.fault()
    world.second()
    # Answers that come later would be told as faults of a disk that nobody has asked for anything since.
    world.until(lambda: node.spool is not None and len(node.spool.unwritten) == len(node.spool.runs))
    assert world.drain(node) == list(range(5_000))
    world.second()
    assert world.engine.paging.fault() == ""
    assert sender.credit > 0
    world.pager.close()


def test_what_expired_on_disk_leaves_though_nobody_consumes(world: World) -> None:
    dead = world.create("dead")
    node = world.create("deep", memory_limit=MB, dead_letter_address="dead")
    world.put(node, 4_000, ttl=60.0)
    assert paged(node) > 2_000
    world.turn(61_000)
    world.second()
    world.until(lambda: node.gate.depth_msgs == 0)
    assert (node.expired, node.dead_lettered, dead.gate.depth_msgs) == (4_000, 4_000, 4_000)
    world.until(lambda: world.engine.paging.passing_bytes == 0)
    assert world.engine.depths.memory.depth_bytes == world.held(dead)


def test_an_expired_message_from_disk_is_never_delivered(world: World) -> None:
    node = world.create("deep", memory_limit=MB)
    world.put(node, 2_000)
    world.put(node, 1_000, ttl=1.0)
    world.put(node, 1_000)
    world.turn(2_000)
    taker = Taker(10_000)
    world.engine.delivery.add_consumer(node, taker)
    world.until(lambda: len(taker.got) + node.expired == 4_000)
    assert [number_of(entry) for entry in taker.got] == [*range(2_000), *range(3_000, 4_000)]


def test_what_a_consumer_forbids_does_not_hold_up_the_rest_on_disk(world: World) -> None:
    node = world.create("deep", memory_limit=MB)
    world.put(node, 3_000)
    assert paged(node) > 1_000
    taker = Taker(100)
    world.engine.delivery.add_consumer(node, taker)
    forbidden, numbers = set[object](), list[object]()

    def settle() -> bool:
        got, taker.got = taker.got, []
        for entry in got:
            number = number_of(entry)
            if isinstance(number, int) and number < 300:
                forbidden.add(number)
                node.queue.forbid(entry, taker)
                world.engine.settlement.requeue(node, entry, True)
            else:
                numbers.append(number)
                world.engine.settlement.acknowledge(node, entry)
        world.engine.turn.mark_dirty(node)
        return len(numbers) == 2_700

    world.until(settle)
    assert (numbers, len(forbidden)) == ([*range(300, 3_000)], 300)


@pytest.mark.parametrize("priority", ["none", "strict"])
def test_annotations_that_outcomes_added_leave_nothing_in_the_disk_s_budget(
    world: World, priority: str
) -> None:
    node = world.create("deep", memory_limit=MB, durable=True, priority=priority)
    added = message.annotations_of(bytes(Message(annotations={symbol("why"): "x" * 100}).encode()))
    world.put(node, 600, durable=True)
    taker = Taker(600)
    world.engine.delivery.add_consumer(node, taker)
    world.until(lambda: len(taker.got) == 600)
    for entry in taker.got:
        add_annotations(entry, added)
        world.engine.settlement.requeue(node, entry, False)
    world.engine.delivery.remove_consumer(node, taker)
    world.put(node, 1_400, durable=True)
    assert paged(node) > 1_000
    assert len(world.drain(node)) == 2_000
    world.until(lambda: not node.queue.gap)
    assert world.engine.depths.disk.depth_bytes == 0
    assert (node.kept_bytes, node.stored_msgs) == (0, 0)


def test_purge_and_delete_give_everything_back(world: World) -> None:
    node = world.create("deep", memory_limit=MB, durable=True)
    other = world.create("other", memory_limit=MB)
    world.put(node, 3_000, durable=True)
    world.put(other, 3_000)
    assert paged(node) > 1_000
    assert world.engine.actions.purge(node) == 3_000
    assert world.store.shelves["deep"].messages == {}
    assert (node.stored_msgs, node.kept_bytes) == (0, 0)
    assert (node.gate.depth_msgs, node.gate.depth_bytes) == (0, 0)
    world.engine.lifecycle.delete("other")
    world.until(lambda: world.pager.used_bytes == 0)
    engine = world.engine
    assert (
        engine.depths.memory.depth_bytes,
        engine.depths.memory.depth_msgs,
        engine.depths.temp.depth_bytes,
    ) == (0, 0, 0)
    assert engine.depths.disk.depth_bytes == 0


def test_a_node_that_pages_no_more_keeps_what_it_had(world: World) -> None:
    world.engine.limit(64 * MB, 0, 2 * MB)
    node = world.create("deep", memory_limit=MB)
    world.put(node, 3_000)
    assert node.allocator.takes(world.engine.depths.temp, 1) == 1
    world.engine.configurator.change(node, resolve({}, BrokerDefaults()))
    assert node.allocator.takes(world.engine.depths.temp, 1) == 0
    before = paged(node)
    world.put(node, 2_000)
    assert paged(node) == before
    assert world.drain(node) == list(range(5_000))


def test_reads_go_before_writes(tmp_path: Path) -> None:
    answers: deque[Callable[[], None]] = deque()
    asked = threading.Event()

    def post(answer: Callable[[], None]) -> None:
        answers.append(answer)
        # However fast the disk is, it has not done it all before it is asked for the read.
        asked.wait(PATIENCE_S)

    pager = Pager(tmp_path, post)
    order: list[object] = []
    places: list[object] = []
    pager.write(b"first", places.append)
    _until(lambda: len(answers) == 1)
    answers.popleft()()
    blob = bytes(spool_room.RUN_BYTES)
    for number in range(20):
        pager.write(blob, lambda _, number=number: order.append(number))  # type: ignore[misc]
    pager.read(places[0], order.append)
    asked.set()
    _until(lambda: len(answers) == 21)
    for answer in answers:
        answer()
    pager.close()
    assert order == [b"first", *range(20)]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("small", [500, 700])
def test_what_was_put_on_disk_for_want_of_memory_is_not_read_again_at_once(world: World, small: int) -> None:
    """Few large messages in front, and behind them one run of small ones, which is all there may be."""
    node = world.create("tight", memory_limit="64KB")
    world.put(node, 3, 8200)
    stalled = Taker(0)
    world.engine.delivery.add_consumer(node, stalled)
    world.put(node, small, 100)
    for _ in range(20):
        world.engine.turn.mark_dirty(node)
        world.turn(1)
    assert paged(node) > 0
    world.engine.delivery.remove_consumer(node, stalled)
    assert world.drain(node) == list(range(3 + small))


def test_a_rejected_message_that_waits_for_room_elsewhere_is_noted_as_delivered(world: World) -> None:
    """The broker may stop before there is room; the message is handed out again then."""
    dead = world.create("dead", overflow="reject", durable=True, max_count=1)
    node = world.create("q", overflow="reject", durable=True, dead_letter_address="dead")
    for each in (dead, node, node):
        world.put(each, 1, durable=True)
    taker = Taker(10)
    world.engine.delivery.add_consumer(node, taker)
    world.until(lambda: len(taker.got) == 2)
    for entry in taker.got:
        world.engine.settlement.reject(node, entry)
    world.turn()
    assert node.letters is not None
    assert node.letters.waiting_msgs() == 2
    kept = world.store.shelves["q"].messages
    assert [flags & REDELIVERED for flags, _, _, _ in kept.values()] == [REDELIVERED] * 2
