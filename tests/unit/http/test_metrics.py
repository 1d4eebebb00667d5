"""The series of a survey, as Prometheus's own parser reads them."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.http.metrics import families
from broker.http.metrics.metrics import render
from broker.manage import survey
from broker.manage.survey import COLUMNS, SurveyScope, row_of
from broker.manage.totals import of_node
from broker.manage.views import BrokerView, Counters, QueueView, StoreView, queue_view
from tests.unit.manage_world import World, finished


def page(world: World, wanted: SurveyScope | None = None) -> str:
    return b"".join(render(world.survey(wanted))).decode()


def series(world: World, wanted: SurveyScope | None = None) -> dict[tuple[str, str], float]:
    """Value by name and the first label there is, if any."""
    text = page(world, wanted)
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_stopped_queue() -> None:
    world = World()
    node = world.queue("orders", flow_stop_count=4, flow_resume_count=2)
    world.fill(node, world.producer(node), 4, size=25)
    world.at(3)
    found = series(world)
    expected = {
        "sluice_queue_depth_messages": 4,
        "sluice_queue_depth_bytes": 100,
        "sluice_queue_flow_stopped": 1,
        "sluice_queue_flow_stopped_total": 1,
        "sluice_queue_flow_stopped_seconds_total": 3,
        "sluice_queue_flow_stop_messages": 4,
        "sluice_queue_flow_resume_messages": 2,
        "sluice_queue_promised_credit": 0,
        "sluice_queue_blocked_producers": 1,
    }
    assert {name: found[name, "orders"] for name in expected} == expected


def test_named_readers_of_streams_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_READERS", 4)
    world = World()
    for name in ("flights", "trains"):
        node = world.queue(name, queue_type="stream")
        world.fill(node, world.producer(node), 5)
        for number in range(3):
            world.engine.streams.commits.restore(node, f"reader{number}", 2 * number)
    found = {
        (sample.labels["stream"], sample.labels["reader"]): sample.value
        for each in text_string_to_metric_families(page(world))
        for sample in each.samples
        if each.name == "sluice_stream_reader_lag_messages"
    }
    flights = {("flights", f"reader{number}"): 5 - 2 * number for number in range(3)}
    assert found == {**flights, ("trains", "reader0"): 5}
    assert series(world)["sluice_stream_readers_left_out", ""] == 2


def test_the_broker_as_a_whole() -> None:
    world = World()
    node = world.queue("orders")
    account = world.producer(node)
    consumer = world.consumer(node)
    world.fill(node, account, 3)
    world.engine.settlement.acknowledge(node, consumer.held[0])
    world.engine.settlement.reject(node, consumer.held[1])
    found = series(world)
    assert found["sluice_messages_received_total", ""] == 3
    assert found["sluice_messages_settled_total", "accepted"] == 1
    assert found["sluice_messages_settled_total", "rejected"] == 1
    assert found["sluice_memory_bytes", ""] == 1 << 20
    assert found["sluice_uptime_seconds", ""] == 5
    assert {"sluice_connections", "sluice_memory_limit_bytes", "sluice_messages_sent_total"} <= {
        name for name, _ in found
    }


def test_names_follow_prometheus_and_come_once() -> None:
    world = World()
    world.queue("orders")
    text = page(world)
    types = [line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len({name for name, _ in types}) == len(types)
    for name, kind in types:
        assert name.startswith(("sluice_", "process_"))
        assert name.endswith("_total") == (kind == "counter")


def test_subscriptions_and_temporary_nodes_have_no_series() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news")
    world.subscribe(topic, "news/s1")
    assert topic.settings is not None
    world.engine.lifecycle.create("$temporary/1", topic.settings)
    assert {label for name, label in series(world) if name == "sluice_queue_depth_messages"} == {"news"}


def test_a_name_cannot_break_out_of_its_label() -> None:
    world = World()
    world.queue('a"} 1 b{x="\\')
    assert series(world)["sluice_queue_depth_messages", 'a"} 1 b{x="\\'] == 0


# What no series can say, or another one says: texts, and what follows from a counter.
NO_NUMBER = {
    "name",
    "kind",
    "topic",
    "deepest",
    "priority_msgs",
    "stream_id",
    "settings",
    "counters",
    "stopped_by",
    "held_by",
}
DERIVED = {"flow_stopped_since_ns", "flow_stopped_for_s", "rate_in", "rate_out", "delayed_next_ns"}
DERIVED |= {"open_transactions", "oldest_transaction_ns"}
# Rates are for people: Prometheus makes its own of the counters.
NOT_OF_BROKER = {"name", "version", "pid", "totals", "store", "rate_in", "rate_out"}
# These are series of the cluster's own.
NOT_OF_BROKER |= {"cluster_role", "cluster_owner", "cluster_epoch", "cluster_suspended"}


def test_every_fact_of_a_node_has_a_series() -> None:
    shown = {each.path for each in families.PER_NODE} | {f"counters.{each}" for each in families.OUTCOMES}
    facts = {each.name for each in fields(QueueView)} - NO_NUMBER - DERIVED | {"held"}
    facts |= {f"counters.{name}" for name in Counters.__slots__}
    assert facts - shown == set()
    assert shown <= set(COLUMNS)


def test_every_fact_of_the_broker_has_a_series() -> None:
    shown = {each.path for each in families.OF_BROKER} | {f"totals.{each}" for each in families.OUTCOMES}
    facts = {each.name for each in fields(BrokerView)} - NOT_OF_BROKER
    facts |= {f"totals.{name}" for name in Counters.__slots__}
    facts |= {f"store.{each.name}" for each in fields(StoreView)} - {"store.state", "store.reason"}
    assert facts - shown == set()


def test_a_row_says_what_the_view_says() -> None:
    world = World()
    node = world.queue("orders", flow_stop_count=4, flow_resume_count=2, max_count=9)
    account = world.producer(node)
    consumer = world.consumer(node)
    world.fill(node, account, 3)
    world.engine.settlement.acknowledge(node, consumer.held[0])
    consumer.credit = 0
    world.put(node, 5)
    world.at(3)
    for held in (False, True):
        view = queue_view(node, "x" if held else "", world.engine.turn.now_ns)
        assert row_of(node, of_node(node), held, world.engine.turn.now_ns) == attrgetter(*COLUMNS)(view)
    node.bridge_sources.append(node)
    try:
        assert len(row_of(node, of_node(node), False, world.engine.turn.now_ns)) == len(COLUMNS)
    finally:
        node.bridge_sources.clear()


def test_a_threshold_that_is_not_there_has_no_sample() -> None:
    world = World()
    world.queue("orders", max_count=10)
    world.queue("free")
    found = series(world)
    assert found["sluice_queue_flow_stop_messages", "orders"] == 8
    assert ("sluice_queue_flow_stop_messages", "free") not in found
    assert ("sluice_queue_limit_messages", "free") not in found


def test_subscriptions_and_links_have_series_where_they_are_asked_for() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news")
    part = world.subscribe(topic, "news/s1")
    world.consumer(part)
    world.producer(topic)
    found = page(world, SurveyScope(subscriptions=True, links=True))
    assert 'sluice_subscription_depth_messages{topic="news/s1",subscription="news/s1"} 0' not in found
    assert 'sluice_subscription_depth_messages{topic="news",subscription="news/s1"} 0' in found
    assert 'sluice_consumer_link_credit{queue="news/s1",container="app",link="r1",id="c1/r1"}' in found
    assert 'sluice_producer_link_credit{queue="news",container="app",link="s1",id="c1/s1"} 100' in found


def test_a_survey_counts_what_went_meanwhile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "AT_ONCE", 1)
    world = World()
    for name in ("first", "middle", "last"):
        world.put(world.queue(name), 2)
    steps = world.model.queries.survey(SurveyScope())
    next(steps)
    next(steps)
    world.model.nodes.delete("first")
    world.model.nodes.delete("last")
    world.put(world.queue("new"), 5)
    assert world.model.queries.broker().totals.received == 11
    found = finished(steps)
    assert [each.name for each in found.nodes] == ["first", "middle"]
    assert found.broker.totals.received == 6
    assert world.model.queries.broker().totals.received == 11
