"""Consumers with a filter and browsers over nodes that page, with a real temporary store: cost, corners."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message

from broker.engine import scan as scan_room
from broker.engine.node import Node
from broker.queues import queue as queue_room
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry, Reader
from tests.unit.engine.test_paging import MB, Taker, World, number_of, paged


class Every:
    """Wants every so many, by number; counts how many it was asked about."""

    def __init__(self, by: int) -> None:
        self.by = by
        self.asked = 0

    def matches(self, data: bytes) -> bool:
        self.asked += 1
        decoded = Message()
        decoded.decode(data)
        return isinstance(decoded.id, int) and decoded.id % self.by == 0


class Selecting(Taker):
    """A consumer with a filter."""

    def __init__(self, window: int, by: int) -> None:
        Taker.__init__(self, window)
        self.filter = Every(by)
        self.reader = Reader(self, self.filter)


class Browser(Consumer):
    """Sees so many; keeps their numbers."""

    def __init__(self, window: int = 1 << 30) -> None:
        Consumer.__init__(self)
        self.window = window
        self.reader = Reader(self, None, True)
        self.seen: list[int] = []

    def capacity(self) -> int:
        return self.window - len(self.seen)

    def send(self, entry: Entry) -> None:
        self.seen.append(entry.seq)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.pager.close()


def deep(world: World, count: int = 3_000, size: int = 1000, **given: object) -> Node:
    """A node with a megabyte in memory and the rest on disk, written."""
    node = world.create("deep", memory_limit=MB, **given)
    world.put(node, count, size)
    assert paged(node) > count // 2
    world.until(lambda: world.engine.paging.passing_bytes == 0)
    return node


def acknowledge(world: World, node: Node, taker: Taker) -> list[object]:
    """It settles what it holds."""
    got, taker.got = taker.got, []
    for entry in got:
        world.engine.settlement.acknowledge(node, entry)
    world.engine.turn.mark_dirty(node)
    return [number_of(entry) for entry in got]


def test_a_filter_finds_the_last_of_a_deep_queue_and_memory_stays_where_it_was(world: World) -> None:
    node = deep(world)
    before = world.engine.depths.memory.depth_bytes
    taker = Selecting(10, 2_999)
    world.engine.delivery.add_consumer(node, taker)
    most = 0

    def found() -> bool:
        nonlocal most
        most = max(most, int(world.engine.depths.memory.depth_bytes))
        return len(taker.got) == 2

    world.until(found)
    assert acknowledge(world, node, taker) == [0, 2_999]
    # Each was looked at once.
    assert taker.filter.asked <= 3_000
    assert most <= before + scan_room.MOST_BYTES + scan_room.MOST_READING * (1 << 16) + 2 * 2000
    for _ in range(3):
        world.second()
    assert world.engine.paging.scans.nbytes == 0
    world.engine.delivery.remove_consumer(node, taker)
    assert world.drain(node) == list(range(1, 2_999))
    assert (world.engine.depths.memory.depth_bytes, world.engine.depths.temp.depth_bytes) == (0, 0)


def test_a_consumer_that_takes_all_and_one_that_selects_serve_a_deep_queue_together(world: World) -> None:
    node = deep(world)
    plain, picky = Taker(50), Selecting(50, 3)
    world.engine.delivery.add_consumer(node, picky)
    world.engine.delivery.add_consumer(node, plain)
    of_plain: list[object] = []
    of_picky: list[object] = []

    def done() -> bool:
        of_plain.extend(acknowledge(world, node, plain))
        of_picky.extend(acknowledge(world, node, picky))
        return len(of_plain) + len(of_picky) == 3_000

    world.until(done)
    assert of_plain == sorted(of_plain, key=lambda each: int(str(each)))
    assert {int(str(each)) for each in [*of_plain, *of_picky]} == set(range(3_000))
    assert of_picky
    assert of_plain
    assert all(int(str(each)) % 3 == 0 for each in of_picky)


def test_a_thousand_browsers_at_a_thousand_places_take_no_more_memory_than_one(world: World) -> None:
    node = deep(world, 500, 16_000)
    world.second()
    before = world.engine.depths.memory.depth_bytes
    browsers = [Browser(window=10 + number // 10) for number in range(1_000)]
    for browser in browsers:
        world.engine.delivery.add_browser(node, browser)
    most = reads = 0

    def seen() -> bool:
        nonlocal most, reads
        most = max(most, int(world.engine.depths.memory.depth_bytes))
        reads = max(reads, len(world.engine.paging.scans.reading))
        return all(browser.capacity() == 0 for browser in browsers)

    world.until(seen)
    for browser in browsers:
        assert browser.seen == list(range(1, browser.window + 1))
    assert reads <= scan_room.MOST_READING
    assert most <= before + scan_room.MOST_BYTES + scan_room.MOST_READING * (1 << 16)
    assert node.gate.depth_msgs == 500


def test_two_nodes_share_the_reading_of_the_disk(world: World) -> None:
    node = deep(world, 6_000)
    other = world.create("other", memory_limit=MB)
    world.put(other, 3_000)
    for number in range(100):
        world.engine.delivery.add_browser(node, Browser(window=50 * number))
    one = Browser(window=3_000)
    world.engine.delivery.add_browser(other, one)
    world.until(lambda: len(one.seen) == 3_000)
    assert one.seen == list(range(1, 3_001))


def test_what_expired_on_disk_is_seen_by_nobody(world: World) -> None:
    node = world.create("deep", memory_limit=MB)
    world.put(node, 2_000)
    world.put(node, 300, ttl=1.0)
    world.put(node, 700)
    world.turn(2_000)
    browser, taker = Browser(), Selecting(10_000, 1)
    world.engine.delivery.add_browser(node, browser)
    world.until(lambda: len(browser.seen) == 2_700)
    world.engine.delivery.add_consumer(node, taker)
    world.until(lambda: len(taker.got) == 2_700)
    assert [number_of(entry) for entry in taker.got] == [*range(2_000), *range(2_300, 3_000)]


def test_a_time_to_live_goes_on_for_what_a_filter_took_from_disk(world: World) -> None:
    dead = world.create("dead")
    node = world.create("deep", memory_limit=MB, dead_letter_address="dead")
    world.put(node, 3_000, ttl=60.0)
    taker = Selecting(10, 2_500)
    world.engine.delivery.add_consumer(node, taker)
    world.until(lambda: len(taker.got) == 2)
    world.turn(61_000)
    late = taker.got[1]
    taker.got.clear()
    world.engine.settlement.requeue(node, late, False)
    world.second()
    world.until(lambda: node.gate.depth_msgs == 1)
    assert (node.expired, dead.gate.depth_msgs) == (2_999, 2_999)


def test_purge_and_delete_while_the_disk_is_read(world: World) -> None:
    node = deep(world, durable=True)
    taker, browser = Selecting(5, 500), Browser()
    world.engine.delivery.add_consumer(node, taker)
    world.engine.delivery.add_browser(node, browser)
    world.until(lambda: len(taker.got) == 5)
    world.engine.actions.purge(node)
    assert node.gate.depth_msgs == 5
    acknowledge(world, node, taker)
    world.turn()
    assert (node.gate.depth_msgs, node.gate.depth_bytes, node.stored_msgs) == (0, 0, 0)
    world.put(node, 3_000)
    world.until(lambda: len(taker.got) == 5)
    acknowledge(world, node, taker)
    world.turn()
    world.engine.lifecycle.delete("deep")
    world.until(lambda: world.pager.used_bytes == 0)
    for _ in range(3):
        world.second()
    engine = world.engine
    assert (
        engine.depths.memory.depth_bytes,
        engine.depths.memory.depth_msgs,
        engine.depths.temp.depth_bytes,
    ) == (0, 0, 0)


def test_what_nobody_may_have_again_holds_up_the_search_not_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that gives back all it takes, for others only, doesn't bring the whole queue into memory."""
    node = deep(world, 6_000)
    taker = Selecting(100, 1)
    world.engine.delivery.add_consumer(node, taker)
    for _ in range(200):
        world.turn()
        got, taker.got = taker.got, []
        for entry in got:
            node.queue.forbid(entry, taker)
            world.engine.settlement.requeue(node, entry, False)
    assert node.queue.aside <= queue_room.MOST_ASIDE + 100
    world.engine.delivery.remove_consumer(node, taker)
    assert world.drain(node) == list(range(6_000))


def test_emptied_runs_give_their_room_back(world: World) -> None:
    node = deep(world)
    taker = Selecting(100, 1)
    world.engine.delivery.add_consumer(node, taker)
    numbers: list[object] = []

    def done() -> bool:
        numbers.extend(acknowledge(world, node, taker))
        return len(numbers) == 3_000

    world.until(done)
    assert numbers == list(range(3_000))
    world.until(lambda: world.pager.used_bytes == 0)
    assert not node.queue.gap
    assert (world.engine.depths.temp.depth_bytes, world.engine.depths.temp.depth_msgs) == (0, 0)
