"""The series of a snapshot, as Prometheus's own parser reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from broker.http.metrics import render
from tests.unit.manage_world import World


def series(world: World) -> dict[tuple[str, str], float]:
    """Value by name and the one label there is, if any."""
    text = render(world.model.snapshot()).decode()
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


def test_the_broker_as_a_whole() -> None:
    world = World()
    node = world.queue("orders")
    account = world.producer(node)
    consumer = world.consumer(node)
    world.fill(node, account, 3)
    world.engine.acknowledge(node, consumer.held[0])
    world.engine.reject(node, consumer.held[1])
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
    text = render(world.model.snapshot()).decode()
    types = [line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len({name for name, _ in types}) == len(types)
    for name, kind in types:
        assert name.startswith("sluice_")
        assert name.endswith("_total") == (kind == "counter")


def test_subscriptions_and_temporary_nodes_have_no_series() -> None:
    world = World()
    topic = world.model.create("topic", "news")
    world.subscribe(topic, "news/s1")
    assert topic.settings is not None
    world.engine.create("$temporary/1", topic.settings)
    assert {label for name, label in series(world) if name == "sluice_queue_depth_messages"} == {"news"}


def test_a_name_cannot_break_out_of_its_label() -> None:
    world = World()
    world.queue('a"} 1 b{x="\\')
    assert series(world)["sluice_queue_depth_messages", 'a"} 1 b{x="\\'] == 0
