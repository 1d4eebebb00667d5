"""What nodes looked like in the last minutes: rings that stay small, and rows that are filled up."""

from __future__ import annotations

import pytest

from broker.engine.node import Node
from broker.manage import samples as module
from broker.manage.samples import ROWS, Sample, Samples
from tests.unit.manage_world import BEGIN, SECOND, World


@pytest.fixture
def world() -> World:
    return World()


def tick(world: World, second: int) -> None:
    """A second of the reactor's."""
    world.at(second)
    world.engine.sampler.sample(world.engine.turn.now_ns)
    world.model.sample()


def rows(world: World, name: str, seconds: int = ROWS) -> list[tuple[float, int]]:
    """When, in seconds since the beginning, and how many messages."""
    return [
        ((each.at_ns - BEGIN) / SECOND, each.depth_msgs)
        for each in world.model.queries.history(name, seconds)[1]
    ]


def test_a_node_that_is_used_has_a_row_a_second(world: World) -> None:
    node = world.queue()
    for second in range(1, 6):
        world.put(node, second)
        tick(world, second)
    assert rows(world, "orders") == [(1, 1), (2, 3), (3, 6), (4, 10), (5, 15)]
    assert rows(world, "orders", 2) == [(4, 10), (5, 15)]


def test_what_does_not_change_takes_no_room_and_is_filled_up(world: World) -> None:
    node = world.queue()
    world.put(node, 3)
    for second in range(1, 11):
        tick(world, second)
    [ring] = world.model.queries.samples._rings.values()
    assert ring.count == 2  # with the rate, and without
    assert rows(world, "orders") == [(second, 3) for second in range(1, 11)]
    rates = [each.rate_in for each in world.model.queries.history("orders", ROWS)[1]]
    assert rates == [3.0] + [0.0] * 9


def test_a_node_nobody_uses_has_none_until_somebody_asks(world: World) -> None:
    world.queue()
    tick(world, 1)
    assert len(world.model.queries.samples) == 0
    assert rows(world, "orders") == [(1, 0)]
    tick(world, 2)
    tick(world, 3)
    assert rows(world, "orders") == [(1, 0), (2, 0), (3, 0)]


def test_stops_are_seen(world: World) -> None:
    world.queue()
    rows(world, "orders")
    for second, held in ((1, False), (2, True), (3, True), (4, False)):
        world.at(second)
        world.model.operators.hold("orders", held)
        tick(world, second)
    assert [each.stopped for each in world.model.queries.history("orders", 4)[1]] == [
        False,
        True,
        True,
        False,
    ]


def test_the_oldest_rows_go_first(world: World) -> None:
    node = world.queue()
    for second in range(1, ROWS + 51):
        world.put(node, 1)
        tick(world, second)
    found = rows(world, "orders")
    assert len(found) == ROWS
    assert found[0] == (51, 51)
    assert found[-1] == (ROWS + 50, ROWS + 50)


def test_a_topic_shows_its_subscriptions_in_all(world: World) -> None:
    topic = world.model.nodes.create("topic", "news")
    one, other = world.subscribe(topic, "news/a"), world.subscribe(topic, "news/b")
    world.put(one, 2)
    world.put(other, 3)
    tick(world, 1)
    assert rows(world, "news") == [(1, 5)]
    assert rows(world, "news/a") == [(1, 2)]


def test_a_node_that_went_takes_its_ring_along(world: World) -> None:
    world.put(world.queue(), 5)
    tick(world, 1)
    world.model.nodes.delete("orders")
    tick(world, 2)
    assert len(world.model.queries.samples) == 0
    world.queue()
    assert rows(world, "orders") == [(2, 0)]


def test_another_node_of_the_same_name_begins_anew(world: World) -> None:
    world.put(world.queue(), 5)
    tick(world, 1)
    world.model.nodes.delete("orders")
    world.queue()
    assert rows(world, "orders") == [(1, 0)]


def test_who_changed_longest_ago_goes_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 3)
    nodes = {name: world.queue(name) for name in "abcd"}

    def used(*names: str, second: int) -> set[str]:
        for name in names:
            world.put(nodes[name], 1)
        tick(world, second)
        return set(world.model.queries.samples._rings)

    assert used("a", "b", "c", second=1) == {"a", "b", "c"}
    tick(world, 2)
    assert used("a", second=3) == {"a", "b", "c"}
    rows(world, "b")
    assert used("d", second=4) == {"a", "b", "d"}


def test_memory_is_bounded_as_it_says() -> None:
    found = Samples()
    world = World()
    nodes: list[Node] = []
    for number in range(50):
        node = world.queue(f"q{number}")
        node.rate_in = 1.0
        nodes.append(node)
    for second in range(ROWS + 10):
        for node in nodes:
            node.rate_in = float(second + 1)
        found.look(nodes, BEGIN + second * SECOND)
    taken = 0
    for ring in found._rings.values():
        columns = (ring._at_ns, ring._depths, ring._sizes, ring._rates_in, ring._rates_out)
        taken += sum(column.itemsize * len(column) for column in columns) + len(ring._stopped)
    assert taken == 50 * ROWS * 33


def test_a_sample_is_a_value() -> None:
    assert Sample(1, 2, 3, True, 4.0, 5.0) == Sample(1, 2, 3, True, 4.0, 5.0)
