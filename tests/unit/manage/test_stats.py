"""The table of figures: views, lists, samples and metrics have what its rows say, and nothing else."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter

import pytest

from broker.engine.node import Node
from broker.http.metrics import families
from broker.manage.attributes import NODE
from broker.manage.listing import QUICK
from broker.manage.stats import BY_PATH, SORTABLE, STATS, Stat, stat_of
from broker.manage.survey import COLUMNS
from broker.manage.views import Counters, QueueView, queue_view
from tests.unit.manage_world import World

# Facts that are no figures, and times that follow from one.
NO_FIGURES = {
    "name",
    "kind",
    "topic",
    "settings",
    "counters",
    "stopped_by",
    "held_by",
    "deepest",
    "priority_msgs",
}
TIMES = {"flow_stopped_since_ns", "flow_stopped_for_s"}


@pytest.fixture
def world() -> World:
    """A queue with links and a topic with subscriptions, a bound queue among them; all with messages."""
    found = World()
    orders = found.queue("orders", flow_stop_count=3, flow_resume_count=1, max_count=9)
    found.fill(orders, found.producer(orders), 3)
    found.consumer(orders, limit=1, credit=1)
    topic = found.model.nodes.create("topic", "news")
    found.consumer(found.subscribe(topic, "news/a"), credit=2)
    found.subscribe(topic, "news/b")
    found.model.nodes.bind("news", "bound")
    found.put(topic, 4)
    for rate, node in enumerate(found.engine.topology.every_node()):
        node.rate_in, node.rate_out = rate + 0.25, rate + 0.75
    found.at(9)
    return found


def test_each_path_has_one_row_and_each_metric_one_text() -> None:
    assert len(BY_PATH) == len(STATS)
    metrics = {stat.metric: stat.help for stat in STATS if stat.metric}
    assert all((stat.metric, stat.help) in metrics.items() for stat in STATS if stat.metric)
    assert all(metrics.values())


def test_each_field_of_a_view_is_a_row_or_no_figure() -> None:
    of_view = {stat.path for stat in STATS if "." not in stat.path} - {"held"}
    assert of_view == {field.name for field in fields(QueueView)} - NO_FIGURES - TIMES
    counters = [path.partition(".")[2] for path in BY_PATH if path.startswith("counters.")]
    assert counters == [field.name for field in fields(Counters)]


def test_metrics_and_lists_come_from_the_table() -> None:
    shown = {stat.path for stat in STATS if stat.metric}
    assert {each.path for each in families.PER_NODE} == {stat.path for stat in STATS if stat.metric} - {
        stat.path for stat in STATS if stat.outcome
    }
    assert set(COLUMNS) == shown
    assert tuple(QUICK) == SORTABLE
    assert all(stat_of(name) in STATS for name in SORTABLE if name != "name")
    assert set(SORTABLE) - {"name"} <= NODE.keys()


@pytest.mark.parametrize("stat", STATS, ids=lambda stat: stat.path)
def test_a_view_has_what_the_row_reads(world: World, stat: Stat) -> None:
    now_ns = world.engine.turn.now_ns
    for node in world.engine.topology.every_node():
        for held_by in ("", "orders"):
            view = queue_view(node, held_by, now_ns)
            assert attrgetter(stat.path)(view) == stat.whole(node, now_ns, bool(held_by))


@pytest.mark.parametrize("stat", STATS, ids=lambda stat: stat.path)
def test_the_short_way_comes_to_the_same(world: World, stat: Stat) -> None:
    node, now_ns = world.engine.topology.nodes["orders"], world.engine.turn.now_ns
    assert short(stat, node, now_ns) == stat.whole(node, now_ns, False)


def short(stat: Stat, node: Node, now_ns: int) -> object:
    """The figure by the way for a lone node."""
    if isinstance(stat.alone, str):
        return attrgetter(stat.alone)(node)
    if callable(stat.alone):
        return stat.alone(node, now_ns)
    return 0 if stat.alone == 0 else stat.whole(node, now_ns, False)
