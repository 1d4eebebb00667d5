"""Prometheus series of one snapshot. Names, units and `_total` as Prometheus's naming asks.

Series are per queue and topic. Links, single subscriptions and temporary nodes come and go with
clients and would grow without bound: they have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from broker.manage.views import BrokerView, QueueView, Snapshot

# The classic format, not OpenMetrics: there a counter's family has no `_total`, and the gauge
# `sluice_queue_flow_stopped` and the counter `sluice_queue_flow_stopped_total` would be one name.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Family = GaugeMetricFamily | CounterMetricFamily


@dataclass(frozen=True, slots=True)
class Metric:
    """One family: its name, what it counts and where a view has it."""

    name: str
    text: str
    path: str

    def family(self, labels: Iterable[str] = ()) -> Family:
        """Empty, a counter if its name says so."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        return kind(self.name, self.text, labels=tuple(labels))

    def value(self, view: object) -> float:
        """What the view has now; how many, where it has a list."""
        value = attrgetter(self.path)(view)
        return float(len(value) if isinstance(value, tuple) else value)


PER_QUEUE = (
    Metric("sluice_queue_depth_messages", "Messages enqueued and not yet dequeued", "depth_msgs"),
    Metric("sluice_queue_depth_bytes", "Their encoded size", "depth_bytes"),
    Metric("sluice_queue_ready_messages", "Messages no consumer holds", "ready_msgs"),
    Metric("sluice_queue_unsettled_messages", "Messages a consumer holds", "unsettled_msgs"),
    Metric("sluice_queue_flow_stopped", "1 while producers are stopped", "flow_stopped"),
    Metric("sluice_queue_held_by_operator", "1 while an operator stops its producers", "held"),
    Metric("sluice_queue_flow_stopped_total", "How often producers were stopped", "flow_stopped_count"),
    Metric("sluice_queue_flow_stopped_seconds_total", "How long in all", "flow_stopped_seconds"),
    Metric("sluice_queue_flow_stop_messages", "Stop threshold, 0: none", "settings.flow_stop_count"),
    Metric("sluice_queue_flow_resume_messages", "Resume threshold, 0: none", "settings.flow_resume_count"),
    Metric("sluice_queue_flow_stop_bytes", "Stop threshold, 0: none", "settings.flow_stop_size"),
    Metric("sluice_queue_flow_resume_bytes", "Resume threshold, 0: none", "settings.flow_resume_size"),
    Metric("sluice_queue_promised_credit", "Credit granted and not yet used", "promised_msgs"),
    Metric("sluice_queue_blocked_producers", "Producer links that wait", "blocked_producers"),
    Metric("sluice_queue_producers", "Producer links", "producers"),
    Metric("sluice_queue_consumers", "Consumer links", "consumers"),
    Metric("sluice_queue_slow_consumers", "Consumer links that are slow", "slow_consumers"),
    Metric("sluice_queue_parked_messages", "Messages waiting outside the queue", "parked_msgs"),
    Metric("sluice_queue_received_messages_total", "Messages enqueued", "counters.received"),
    Metric("sluice_queue_delivered_messages_total", "Messages sent to consumers", "counters.delivered"),
    Metric("sluice_queue_dropped_messages_total", "Messages dropped", "counters.dropped"),
    Metric("sluice_queue_refused_messages_total", "Messages refused for want of room", "counters.refused"),
    Metric("sluice_queue_paged_messages", "Messages on disk only", "paged_msgs"),
    Metric("sluice_queue_expired_messages_total", "Messages that expired", "counters.expired"),
    Metric(
        "sluice_queue_dead_lettered_messages_total",
        "Messages that became dead letters",
        "counters.dead_lettered",
    ),
)

OF_BROKER = (
    Metric("sluice_messages_received_total", "Messages enqueued", "totals.received"),
    Metric("sluice_messages_received_bytes_total", "Their encoded size", "totals.received_bytes"),
    Metric("sluice_messages_sent_total", "Messages sent to consumers", "totals.delivered"),
    Metric("sluice_messages_refused_total", "Messages refused for want of room", "totals.refused"),
    Metric("sluice_messages_dropped_total", "Messages dropped", "totals.dropped"),
    Metric("sluice_messages_unrouted_total", "Messages to topics nobody subscribed to", "totals.unrouted"),
    Metric("sluice_connections", "Open connections", "connections"),
    Metric("sluice_producers", "Producer links", "producers"),
    Metric("sluice_consumers", "Consumer links", "consumers"),
    Metric("sluice_blocked_producers", "Producer links that wait", "blocked_producers"),
    Metric("sluice_slow_consumers", "Consumer links that are slow", "slow_consumers"),
    Metric("sluice_deadlocks", "Circles of nodes and connections that wait for each other", "deadlocks"),
    Metric("sluice_deadlocks_found_total", "How many were found", "deadlocks_found"),
    Metric("sluice_depth_messages", "Messages enqueued and not yet dequeued", "depth_msgs"),
    Metric("sluice_depth_bytes", "Their encoded size", "depth_bytes"),
    Metric("sluice_promised_credit", "Credit granted and not yet used", "promised_msgs"),
    Metric("sluice_parked_messages", "Messages waiting outside a queue", "parked_msgs"),
    Metric("sluice_parked_bytes", "Their encoded size", "parked_bytes"),
    Metric("sluice_memory_bytes", "Resident memory of the broker", "memory_bytes"),
    Metric("sluice_memory_limit_bytes", "Memory messages may take, 0: no limit", "memory_limit_bytes"),
    Metric("sluice_held_bytes", "Memory all messages take, with their places", "store.held_bytes"),
    Metric("sluice_store_bytes", "Durable messages on disk", "store.store_bytes"),
    Metric("sluice_store_limit_bytes", "What they may take, 0: no limit", "store.store_limit_bytes"),
    Metric("sluice_store_syncs_total", "Writes to the journal that were synced", "store.syncs"),
    Metric("sluice_store_sync_seconds_total", "How long they took", "store.sync_seconds"),
    Metric("sluice_store_written_bytes_total", "Records in them", "store.written_bytes"),
    Metric("sluice_temp_bytes", "Messages paged out to disk", "store.temp_bytes"),
    Metric("sluice_temp_limit_bytes", "What they may take, 0: no limit", "store.temp_limit_bytes"),
    Metric("sluice_uptime_seconds", "Time since the start", "uptime_s"),
)

OUTCOMES = ("accepted", "rejected", "released", "modified")
SETTLED = Metric("sluice_messages_settled_total", "Messages settled by consumers", "totals")


class SnapshotCollector(Collector):
    """The families of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """Every family, those of the broker first."""
        broker = self._snapshot.broker
        yield _build(broker)
        for metric in OF_BROKER:
            family = metric.family()
            family.add_metric([], metric.value(broker))
            yield family
        yield _settled(broker)
        yield _store(broker)
        shown = [view for view in self._snapshot.queues if _is_shown(view)]
        for metric in PER_QUEUE:
            family = metric.family(["queue"])
            for view in shown:
                family.add_metric([view.name], metric.value(view))
            yield family


def render(snapshot: Snapshot) -> bytes:
    """What `/metrics` answers."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(snapshot))
    encode: Callable[[CollectorRegistry], bytes] = generate_latest
    return encode(registry)


def _build(broker: BrokerView) -> Family:
    family = GaugeMetricFamily("sluice_build_info", "Always 1; the version", labels=["version"])
    family.add_metric([broker.version], 1.0)
    return family


def _settled(broker: BrokerView) -> Family:
    family = SETTLED.family(["outcome"])
    for outcome in OUTCOMES:
        family.add_metric([outcome], float(getattr(broker.totals, outcome)))
    return family


STATES = ("writing", "full", "failed")


def _store(broker: BrokerView) -> Family:
    family = GaugeMetricFamily("sluice_store_state", "1 for the state the store is in", labels=["state"])
    for state in STATES:
        family.add_metric([state], float(broker.store.state == state))
    return family


def _is_shown(view: QueueView) -> bool:
    return view.topic is None and not view.name.startswith("$")
