"""Lists in short pieces: names, one value of some, rows of a page; and what has gone in between."""

from __future__ import annotations

import pytest

from broker.errors import OperatorError
from broker.manage.attributes import PREFIX
from broker.manage.entities import NODE_KINDS
from broker.manage.listing import NODE_TYPES, QUICK, at_once, check_columns
from broker.manage.views import ConnectionView
from tests.unit.manage_world import BEGIN, World, finished


@pytest.fixture
def world() -> World:
    """Nodes of each kind with something to be seen at all of them."""
    world = World()
    full = world.queue("full", max_count=10, flow_stop_count=3, flow_resume_count=1)
    world.fill(full, world.producer(full), 3)
    world.consumer(world.queue("taken"))
    news = world.model.nodes.create("topic", "news")
    world.put(world.subscribe(news, "news/a"), 2)
    world.consumer(world.subscribe(news, "news/b"))
    world.producer(news)
    world.model.nodes.create("topic", "quiet")
    for node in world.engine.topology.every_node():
        node.rate_in, node.rate_out = 1.5, 2.5
    return world


def test_names_by_kind(world: World) -> None:
    listing = world.model.listing
    assert listing.nodes(("queue",)) == ["full", "taken"]
    assert listing.nodes(("topic", "subscription")) == ["news", "quiet", "news/a", "news/b"]


@pytest.mark.parametrize("attribute", sorted(QUICK))
def test_what_is_quick_is_the_same_as_in_the_whole_row(world: World, attribute: str) -> None:
    listing = world.model.listing
    found = listing.nodes(NODE_KINDS)
    assert listing.keys(found, attribute) == [row[attribute] for row in listing.rows(found, ())]


@pytest.mark.parametrize("attribute", ["max_count", "blocked_producers", "flowStoppedSince"])
def test_any_other_attribute_is_found_too_in_smaller_pieces(world: World, attribute: str) -> None:
    listing = world.model.listing
    found = listing.nodes(NODE_KINDS)
    assert listing.keys(found, attribute) == [row[attribute] for row in listing.rows(found, ())]
    assert at_once(attribute) < at_once("depth_msgs")


def test_what_has_gone_is_left_out(world: World) -> None:
    listing = world.model.listing
    found = listing.nodes(("queue",))
    world.model.nodes.delete("full")
    assert listing.keys(found, "depth_msgs") == [None, 0]
    assert listing.keys(found, "max_count") == [None, 0]
    assert [row["name"] for row in listing.rows(found, ("name",))] == ["taken"]


def test_attributes_are_those_of_one_of_the_types() -> None:
    check_columns(NODE_TYPES, ("name", "depth_msgs"))
    with pytest.raises(OperatorError, match="'colour'"):
        check_columns(NODE_TYPES, ("name", "colour"))


def test_clients_come_one_by_one(world: World) -> None:
    listing = world.model.listing
    world.links.open.append(ConnectionView("c1", "app", "127.0.0.1:4000", BEGIN, 1, 2, 3, 4, "anonymous"))
    for kind, count in (("connection", 1), ("session", 1), ("link", 4)):
        views = finished(listing.others(PREFIX + kind))
        assert len(views) == count
        assert all(listing.row(PREFIX + kind, view)["type"] == PREFIX + kind for view in views)
    assert len(finished(listing.others(PREFIX + "link", "full"))) == 1
    assert finished(listing.others(PREFIX + "binding")) == []
