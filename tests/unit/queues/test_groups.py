"""Message groups, case by case; ``tests/property/test_groups_walk.py`` has them all."""

from __future__ import annotations

import pytest

from broker.queues.dispatch import Consumer
from broker.queues.groups import MessageGroups
from broker.queues.queue import Entry, Queue
from tests.grouped import LAST, body_of, grouped

pytestmark = pytest.mark.flow


class Taker(Consumer):
    """Holds what it is sent."""

    def __init__(self, credit: int) -> None:
        super().__init__()
        self.credit = credit
        self.held: list[Entry] = []
        self.marks: list[str] = []

    def capacity(self) -> int:
        return self.credit

    def send(self, entry: Entry) -> None:
        self.credit -= 1
        self.in_flight += 1
        self.held.append(entry)
        self.marks.append("" if entry.extra is None else entry.extra.mark)

    @property
    def got(self) -> list[str]:
        return [body_of(each.data).decode() for each in self.held]


class World:
    """A queue with groups and its consumers."""

    def __init__(self, *takers: Taker) -> None:
        self.queue = Queue()
        self.groups = MessageGroups(self.queue)
        self.takers = list(takers)
        for taker in takers:
            self.groups.join(taker)

    def put(self, *words: str) -> None:
        """Messages such as ``a1``, of the group ``a``; ``-1`` is of none, ``a9!`` ends its group."""
        for word in words:
            group = "" if word[0] == "-" else word[0]
            self.queue.append(grouped(group, LAST if word[-1] == "!" else None, word.encode()))
        self.serve()

    def serve(self) -> None:
        self.groups.dispatch(list(self.takers), False, False, 0)

    def settle(self, taker: Taker) -> None:
        for entry in taker.held:
            self.queue.settle(entry)
        taker.in_flight = 0
        taker.held.clear()
        self.serve()


def test_new_groups_go_to_the_consumer_with_the_fewest() -> None:
    one, other = Taker(100), Taker(100)
    world = World(one, other)
    world.put("a1", "b1", "c1", "d1", "a2", "b2", "-1")
    assert one.got[:3] == ["a1", "c1", "a2"]
    assert other.got[:3] == ["b1", "d1", "b2"]


def test_a_closed_group_goes_on_with_the_other_consumer() -> None:
    one, other = Taker(5), Taker(0)
    world = World(one, other)
    world.put("a1", "a2!", "a3", "a4")
    assert one.got == ["a1", "a2!"]
    other.credit = 5
    world.serve()
    assert other.got == []
    one.credit = 0
    world.settle(one)
    assert other.got == ["a3", "a4"]


def test_only_the_first_of_a_group_at_its_consumer_is_marked() -> None:
    one, other = Taker(5), Taker(5)
    world = World(one)
    world.groups.first_key = "first"
    world.put("a1", "a2")
    assert one.marks == ["first", ""]
    for entry in one.held:
        assert entry.extra is None or entry.extra.mark == ""
        world.queue.release(entry)
    world.takers = [other]
    world.groups.join(other)
    world.groups.leave(one)
    world.serve()
    assert (other.got, other.marks) == (["a1", "a2"], ["first", ""])


def test_idle_groups_are_forgotten_beyond_a_number() -> None:
    one = Taker(10**6)
    world = World(one)
    world.groups.most_idle = 10
    for i in range(1000):
        world.queue.append(grouped(f"g{i}", None, b"x"))
        world.serve()
        world.settle(one)
    assert len(world.groups.groups) <= 12
    assert world.groups.owned() <= 12


def test_a_million_groups_take_no_memory_once_they_are_idle() -> None:
    one = Taker(10**9)
    world = World(one)
    for start in range(0, 60_000, 1000):
        for i in range(start, start + 1000):
            world.queue.append(grouped(f"g{i}", None, b"x"))
        world.serve()
        world.settle(one)
    assert len(world.groups.groups) <= world.groups.most_idle + 1000
    assert not world.groups.held


def test_rebalance_moves_idle_groups_to_a_consumer_that_comes() -> None:
    one, other = Taker(100), Taker(100)
    world = World(one)
    world.groups.rebalance = True
    world.put(*(f"{group}1" for group in "abcdef"))
    world.settle(one)
    world.takers.append(other)
    world.groups.join(other)
    world.put(*(f"{group}2" for group in "abcdef"))
    assert (len(one.got), len(other.got)) == (3, 3)


def test_rebalance_moves_a_held_group_when_it_is_settled() -> None:
    one, other = Taker(2), Taker(100)
    world = World(one)
    world.groups.rebalance = True
    world.put("a1", "b1", "a2", "b2")
    world.takers.append(other)
    world.groups.join(other)
    world.serve()
    assert other.got == [], "both are held"
    world.settle(one)
    assert other.got in (["a2"], ["b2"])
    one.credit = 5
    world.serve()
    assert sorted(one.got + other.got) == ["a2", "b2"]


def test_an_operators_reset_waits_for_what_is_held() -> None:
    one, other = Taker(1), Taker(5)
    world = World(one)
    world.put("a1", "a2")
    world.takers.append(other)
    world.groups.join(other)
    assert not world.groups.reset(b"a")
    world.serve()
    assert other.got == []
    world.settle(one)
    assert other.got == ["a2"]
    with pytest.raises(KeyError):
        world.groups.reset(b"nobody")


def test_a_mover_takes_messages_of_any_group() -> None:
    one, mover = Taker(1), Taker(3)
    mover.joins_groups = False
    world = World(one)
    world.put("a1", "a2", "a3", "b1", "b2")
    assert one.got == ["a1"]
    world.takers.append(mover)
    world.serve()
    assert mover.got == ["a2", "a3", "b1"]
    one.credit = 5
    world.serve()
    assert one.got == ["a1", "b2"]


def test_what_comes_back_out_of_order_goes_out_in_order() -> None:
    one, other = Taker(6), Taker(10)
    world = World(one, other)
    world.takers = [one]
    world.put(*(f"a{i}" for i in range(10)))
    held, one.held = list(one.held), []
    for i in (3, 0, 5, 1, 4, 2):
        world.queue.release(held[i])
    world.groups.leave(one)
    world.takers = [other]
    world.serve()
    assert other.got == [f"a{i}" for i in range(10)]
