"""A deep priority queue with a real temporary store: levels page apart, and all of it comes back in order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message

from broker.codec import message
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.node import Node
from broker.engine.priority_spool import PrioritySpool
from broker.errors import OperatorError
from broker.queues.priority import PriorityQueue
from broker.queues.queue import Reader
from tests.unit.engine.test_paging import MB, Taker, World, number_of

COUNT = 4000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.pager.close()


def put(world: World, node: Node, levels: list[int], size: int = 1000, **fields: object) -> None:
    for level in levels:
        made = Message(body=bytes(size), id=node.received, **fields)
        made.priority = level
        data = bytes(made.encode())
        world.engine.intake.put(node, data, message.scan(data))
        world.turn()


def checked(node: Node) -> None:
    """The sums are those of the levels, and all messages are somewhere."""
    queue, spool = node.queue, node.spool
    assert isinstance(queue, PriorityQueue)
    assert isinstance(spool, PrioritySpool)
    before = (queue.ready, queue.acquired, queue.behind, queue.aside, queue.pending, queue.gap, spool.count)
    spool.refresh()
    assert before == (
        *(queue.ready, queue.acquired, queue.behind, queue.aside, queue.pending),
        *(queue.gap, spool.count),
    )
    there = queue.ready + queue.acquired + queue.behind + queue.aside + queue.pending + spool.count
    assert there == node.gate.depth_msgs


@pytest.mark.parametrize("durable", [False, True])
def test_every_level_comes_back_in_order_and_the_highest_first(world: World, durable: bool) -> None:
    node = world.create("deep", memory_limit="2MB", priority="strict", durable=durable)
    dice = random.Random(5)
    levels = [dice.choice([0, 4, 4, 4, 7, 9]) for _ in range(COUNT)]
    put(world, node, levels, durable=durable)
    world.until(lambda: node.spool is not None and node.spool.count > COUNT // 4)
    checked(node)
    assert world.held(node) < 2 * MB
    assert isinstance(node.spool, PrioritySpool)
    # The lowest are on disk, the highest are not.
    assert node.spool.levels[0].count > 0
    assert node.spool.levels[9].count == 0
    put(world, node, [8], durable=durable)
    numbers = world.drain(node)
    of = [*levels, 8]
    assert numbers == sorted(range(COUNT + 1), key=lambda number: (-of[number], number))
    checked(node)
    assert node.gate.depth_msgs == node.gate.depth_bytes == 0
    assert node.spool.count == 0
    assert world.engine.depths.memory.depth_bytes == 0


class Odd:
    def matches(self, data: bytes) -> bool:
        decoded = Message()
        decoded.decode(data)
        return isinstance(decoded.id, int) and decoded.id % 100 == 1


def test_selectors_and_browsers_look_at_all_levels_on_disk(world: World) -> None:
    node = world.create("deep", memory_limit="2MB", priority="strict")
    levels = [number % 3 for number in range(COUNT)]
    put(world, node, levels)
    world.until(lambda: node.spool is not None and node.spool.count > COUNT // 4)
    taker = Taker(1000)
    taker.reader = Reader(taker, Odd())
    world.engine.delivery.add_consumer(node, taker)
    wanted = [number for number in range(COUNT) if number % 100 == 1]
    world.until(lambda: len(taker.got) == len(wanted))
    by_level = sorted(wanted, key=lambda number: (-levels[number], number))
    assert [number_of(entry) for entry in taker.got] == by_level
    checked(node)
    # They come back to their places.
    for entry in taker.got:
        world.engine.settlement.requeue(node, entry, False)
    world.engine.delivery.remove_consumer(node, taker)
    taker.got = []
    checked(node)
    browser = Taker(10 * COUNT)
    browser.reader = Reader(browser, None, True)
    world.engine.delivery.add_browser(node, browser)
    world.until(lambda: len(browser.got) == COUNT)
    shown = [int(str(number_of(entry))) for entry in browser.got]
    assert shown == sorted(range(COUNT), key=lambda number: (-levels[number], number))
    world.engine.delivery.remove_browser(node, browser)
    checked(node)


def test_a_purge_leaves_what_is_held_or_on_its_way_to_disk(world: World) -> None:
    node = world.create("deep", memory_limit="2MB", priority="fair", durable=True)
    put(world, node, [number % 10 for number in range(COUNT)], durable=True)
    world.until(lambda: node.spool is not None and node.spool.count > COUNT // 4)
    taker = Taker(20)
    world.engine.delivery.add_consumer(node, taker)
    world.until(lambda: len(taker.got) == 20)
    # These wait for the disk when everything else goes.
    for level in (0, 5):
        made = Message(body=b"late", id=level, durable=True)
        made.priority = level
        data = bytes(made.encode())
        world.engine.intake.put(node, data, message.scan(data))
    assert node.queue.pending == 2
    gone = world.engine.actions.purge(node)
    assert gone == COUNT - 20
    checked(node)
    assert node.shelf is not None
    kept = {entry.seq for entry in node.queue}
    assert len(kept) == 22
    assert set(node.shelf.messages) == kept  # type: ignore[attr-defined]
    world.turn()
    assert node.queue.pending == 0
    assert node.queue.ready == 2


def test_the_order_stays_while_part_of_it_is_on_disk(world: World) -> None:
    node = world.create("deep", memory_limit="2MB", priority="strict")
    put(world, node, [4] * COUNT)
    world.until(lambda: node.spool is not None and node.spool.count > 0)
    plain = resolve({"overflow": "page", "memory_limit": "2MB"}, BrokerDefaults())
    with pytest.raises(OperatorError, match="on disk"):
        world.engine.configurator.change(node, plain)
    assert isinstance(node.queue, PriorityQueue)
    fair = resolve({"overflow": "page", "memory_limit": "2MB", "priority": "fair"}, BrokerDefaults())
    world.engine.configurator.change(node, fair)
    assert node.queue.fair
    world.engine.actions.purge(node)
    world.turn()
    world.engine.configurator.change(node, plain)
    assert not isinstance(node.queue, PriorityQueue)
    put(world, node, [4] * COUNT)
    world.until(lambda: node.spool is not None and node.spool.count > 0)
    assert len(world.drain(node)) == COUNT


def test_messages_that_expire_on_disk_leave_every_level(world: World) -> None:
    node = world.create("deep", memory_limit="2MB", priority="strict")
    put(world, node, [number % 2 for number in range(COUNT)], ttl=5.0)
    world.until(lambda: node.spool is not None and node.spool.count > 0)
    world.turn(6000)
    world.second()
    # The disk answers in its own time.
    world.until(lambda: node.gate.depth_msgs == 0)
    assert node.gate.depth_msgs == 0
    assert node.expired == COUNT
    checked(node)
