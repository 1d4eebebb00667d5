"""Listings and single entities under the names users know."""

from __future__ import annotations

import pytest

from broker.errors import NotFoundError, OperatorError
from broker.manage.attributes import ROWS
from broker.manage.forwards import ChannelView, RouteView
from broker.manage.views import ConnectionView
from tests.unit.manage_world import BEGIN, World

QUEUE = "org.sluice.queue"


def test_a_page_holds_what_was_asked_for_in_that_order() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.queue(name, flow_stop_count=5)
    page = world.model.queries.query(QUEUE, ["flow_stop_count", "name"], offset=1, count=1)
    assert (page.attribute_names, page.results, page.total) == (("flow_stop_count", "name"), ((5, "b"),), 3)
    assert world.model.queries.query(QUEUE, ["name"], offset=3).results == ()


@pytest.mark.parametrize("sort", ["", "name"])
def test_an_attribute_that_is_named_twice_is_one_column(sort: str) -> None:
    world = World()
    world.queue("a", flow_stop_count=5)
    page = world.model.queries.query(QUEUE, ["name", "flow_stop_count", "name"], sort=sort)
    assert (page.attribute_names, page.results) == (("name", "flow_stop_count"), (("a", 5),))


@pytest.mark.parametrize("type_", list(ROWS))
def test_every_attribute_of_every_type_can_be_read(type_: str) -> None:
    world = World("policies: [{match: orders, max_count: 100}]")
    node = world.queue("orders")
    world.producer(node)
    world.consumer(node)
    topic = world.model.nodes.create("topic", "news")
    world.subscribe(topic, "news/s1")
    world.links.open.append(ConnectionView("c1", "app", "127.0.0.1:4000", BEGIN, 1, 2, 3, 4, "anonymous"))
    if type_.endswith("binding"):
        world.model.nodes.bind("news", "orders")
    world.model.bridges.create("orders->copies", {})
    world.model.nodes.delete("copies")
    world.model.queries.routes = lambda: [
        RouteView("hq", "amqp://hq:5672", "out", "orders", "orders", "up", BEGIN, "", 1, 2, 3, 4, 5, 6, 7)
    ]
    world.model.queries.channels = lambda: [
        ChannelView("feed", "news", "127.0.0.1:5000", 100, True, "open", "", 1, 2, 3, 4, 5, 6, 7)
    ]
    page = world.model.queries.query(type_)
    assert page.total == (2 if type_.endswith("link") else 1)
    whole = dict(zip(page.attribute_names, page.results[0], strict=True))
    assert whole["type"] == type_
    for key in ("name", "identity"):
        read = world.model.queries.read(type_, str(whole[key]))
        assert read.items() <= whole.items()
    assert all(isinstance(value, (str, int, float, list, type(None))) for value in whole.values())


def test_qpids_names_and_ours_say_the_same() -> None:
    world = World()
    node = world.queue(flow_stop_count=2)
    world.fill(node, world.producer(node), 2)
    read = world.model.queries.read(QUEUE, "orders")
    assert read["flowStopped"] is read["flow_stopped"] is True
    assert read["flowStoppedCount"] == read["flow_stopped_count"] == 1
    assert read["flowStoppedBy"] == "flow_stop_count"
    assert read["flowStoppedSince"] == "1970-01-01T00:01:40.000+00:00"
    assert (read["depth_msgs"], read["received"], read["blocked_producers"]) == (2, 2, 1)


def test_a_queue_is_no_topic() -> None:
    world = World()
    world.queue("orders")
    with pytest.raises(NotFoundError):
        world.model.queries.read("org.sluice.topic", "orders")


def test_unknown_types_and_attributes_are_refused() -> None:
    world = World()
    with pytest.raises(NotFoundError, match=r"org\.sluice\.queue"):
        world.model.queries.query("org.sluice.quueue")
    with pytest.raises(OperatorError, match="'depth'"):
        world.model.queries.query(QUEUE, ["name", "depth"])


def test_everything_at_once_leaves_out_what_does_not_apply() -> None:
    world = World()
    world.queue("orders")
    page = world.model.queries.query(None, ["type", "name", "pid"])
    assert page.results == (("org.sluice.broker", "sluice", 42), (QUEUE, "orders", None))


def test_a_link_shows_its_role() -> None:
    world = World()
    node = world.queue("orders")
    world.producer(node)
    world.consumer(node, limit=10)
    page = world.model.queries.query("org.sluice.link", ["role", "node", "window_limit", "window"])
    assert page.results == (("producer", "orders", None, 100), ("consumer", "orders", 10, None))
