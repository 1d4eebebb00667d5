"""The names under which users meet what can be seen: one table for AMQP, HTTP and the command line.

Each row is a name and the field of the view it shows, or a function where it is made of several.
Flow control's names are those of FLOW §2 and §7; `flowStopped`, `flowStoppedCount` and their like are
what users of Qpid know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter

from broker.config.node import NodeSettings
from broker.manage.stats import stat_of
from broker.manage.views import Counters, StoreView
from broker.units import SECOND_NS

PREFIX = "org.sluice."

# Read with the view and the wall clock's nanoseconds at monotonic zero.
Reader = Callable[[object, int], object]
Row = dict[str, Reader]


# The field that a reader reads, of those that read one.
_PATHS: dict[Reader, str] = {}


def path_of(read: Reader) -> str:
    """Return the path of the view's field that a reader reads; '' for one that makes its value of several."""
    return _PATHS.get(read, "")


def _field(path: str) -> Reader:
    get = attrgetter(path)

    def read(view: object, epoch_ns: int) -> object:
        return get(view)

    _PATHS[read] = path
    return read


def _same(*names: str) -> Row:
    return {name: _field(name) for name in names}


def _figures(*names: str) -> Row:
    """Figures of a node under the names of Qpid's users."""
    return {name: _field(stat_of(name).path) for name in names}


def _when(path: str, view: object, epoch_ns: int) -> str | None:
    """A moment in ISO 8601, or nothing where it never came."""
    at_ns = attrgetter(path)(view)
    if not at_ns:
        return None
    return datetime.fromtimestamp((epoch_ns + at_ns) / SECOND_NS, UTC).isoformat(timespec="milliseconds")


def _set_aside(view: object, epoch_ns: int) -> list[dict[str, object]]:
    return [shown(each, ASIDE, epoch_ns) for each in attrgetter("set_aside")(view)]


def _deadlocks(view: object, epoch_ns: int) -> list[dict[str, object]]:
    return [shown(each, DEADLOCK, epoch_ns) for each in attrgetter("deadlocks")(view)]


def _constant(value: object) -> Reader:
    return lambda view, epoch_ns: value


def _entity(kind: str, name: str = "name", identity: str = "name") -> Row:
    return {"name": _field(name), "identity": _field(identity), "type": _constant(PREFIX + kind)}


SETTINGS: Row = {
    row.name: _field(f"settings.{row.name}") for row in fields(NodeSettings) if row.name != "kind"
}
COUNTERS: Row = {name: _field(f"counters.{name}") for name in Counters.__slots__}

NODE: Row = {
    **_same("kind", "topic", "subscriptions", "deepest", "priority_msgs"),
    **SETTINGS,
    **_same("depth_msgs", "depth_bytes", "ready_msgs", "unsettled_msgs", "peak_msgs", "peak_bytes"),
    **_figures("flowStopped", "flowStoppedCount"),
    "flowStoppedSince": partial(_when, "flow_stopped_since_ns"),
    "flowStoppedFor": _field("flow_stopped_for_s"),
    **_figures("flowStoppedSeconds"),
    "flowStoppedBy": _field("stopped_by"),
    **_figures("flowEnforced"),
    "heldBy": _field("held_by"),
    **_same("flow_stopped", "flow_stopped_count", "flow_stopped_seconds"),
    **_same("promised_msgs", "promised_bytes", "parked_msgs", "parked_bytes", "overrun_msgs", "late_msgs"),
    **_same("producers", "blocked_producers", "consumers", "revocations"),
    **COUNTERS,
    **_same("rate_in", "rate_out", "paged_msgs", "paged_bytes", "slow_consumers"),
    **_same("uncommitted_msgs", "uncommitted_bytes", "open_transactions"),
    "oldest_transaction": partial(_when, "oldest_transaction_ns"),
    **_same("delayed_msgs"),
    "delayed_next": partial(_when, "delayed_next_ns"),
    **_same("groups", "stuck_groups", "group_stuck_msgs", "last_values"),
    **_same("stream_msgs", "first_offset", "next_offset", "stream_id"),
}

LINK: Row = {
    **_same("connection", "container", "peer", "node", "link", "credit", "presettled"),
}

PRODUCER: Row = {
    **_entity("link", "link", "id"),
    "role": _constant("producer"),
    **LINK,
    **_same("window", "withdrawn", "used", "parked", "parked_bytes", "overrun", "late", "blocked"),
    **_same("priority"),
    "blockedSince": partial(_when, "blocked_since_ns"),
}

CONSUMER: Row = {
    **_entity("link", "link", "id"),
    "role": _constant("consumer"),
    **LINK,
    **_same("unsettled", "window_limit", "shut", "shut_count", "reopen", "delivered", "settled"),
    **_same("connection_limit", "connection_unsettled", "connection_shut"),
    **_same("settle_rate", "round_trip_s", "slow", "timed_out", "priority"),
}

CONNECTION: Row = {
    **_entity("connection", "container", "id"),
    **_same("container", "peer", "user", "mechanism", "tls", "sessions", "links"),
    **_same("messages_in", "messages_out"),
    "opened": partial(_when, "opened_ns"),
    **_same("open_transactions", "uncommitted_msgs", "uncommitted_bytes"),
    "oldest_transaction": partial(_when, "oldest_transaction_ns"),
}

SESSION: Row = {
    **_entity("session", "id", "id"),
    **_same("connection", "container", "peer", "channel", "producers", "consumers", "unsettled"),
}

POLICY: Row = {
    **_entity("policy"),
    **_same("match", "of_subscriptions", "origin", "file", "line", "auto_create", "settings"),
}

DEADLOCK: Row = {
    **_same("nodes", "connections", "sentence", "waits"),
    "since": partial(_when, "since_ns"),
}

ASIDE: Row = _same("kind", "name", "depth_msgs", "depth_bytes", "reason")

BROKER: Row = {
    **_entity("broker"),
    **_same("version", "pid", "uptime_s", "flow_control", "holds", "policy_files"),
    **_same("connections", "producers", "consumers", "queues", "topics", "subscriptions"),
    **_same(
        "stopped_nodes", "blocked_producers", "slow_consumers", "depth_msgs", "depth_bytes", "promised_msgs"
    ),
    **_same("parked_msgs", "parked_bytes", "memory_bytes", "memory_limit_bytes", "rate_in", "rate_out"),
    "deadlocks": _deadlocks,
    "deadlocks_found": _field("deadlocks_found"),
    "set_aside": _set_aside,
    **_same("open_transactions", "committed_transactions"),
    **_same("rolled_back_transactions", "timed_out_transactions"),
    **_same("cluster_role", "cluster_owner", "cluster_epoch", "cluster_suspended"),
    "storeState": _field("store.state"),
    "storeReason": _field("store.reason"),
    **{
        row.name: _field(f"store.{row.name}")
        for row in fields(StoreView)
        if row.name not in ("state", "reason")
    },
    **{name: _field(f"totals.{name}") for name in Counters.__slots__},
}

BINDING: Row = {**_entity("binding"), **_same("source", "target")}
BRIDGE: Row = {
    **_entity("bridge"),
    "from": _field("source"),
    "to": _field("target"),
    **_same(
        "selector", "durable", "configured", "state", "reason", "crosses", "copied", "passed_by", "refused"
    ),
}

ROUTE: Row = {
    **_entity("route"),
    **_same("url", "direction", "local", "remote", "state"),
    "since": partial(_when, "since_ns"),
    "lastError": _field("last_error"),
    **_same("forwarded", "backlog", "unsettled", "credit", "rejected", "returned", "connects"),
}

CHANNEL: Row = {
    **_entity("channel"),
    **_same("topic", "to", "max_rate", "flow_control", "state"),
    "lastError": _field("last_error"),
    **_same("sent", "sent_bytes", "backlog", "backlog_bytes", "waiting", "too_large", "dropped"),
}

# Entity type -> its rows; a link is a producer or a consumer, and shows what applies to it.
ROWS: Mapping[str, Row] = {
    PREFIX + "broker": BROKER,
    PREFIX + "queue": {**_entity("queue"), **NODE},
    PREFIX + "topic": {**_entity("topic"), **NODE},
    PREFIX + "subscription": {**_entity("subscription"), **NODE},
    PREFIX + "binding": BINDING,
    PREFIX + "connection": CONNECTION,
    PREFIX + "session": SESSION,
    PREFIX + "link": {**PRODUCER, **CONSUMER},
    PREFIX + "policy": POLICY,
    PREFIX + "bridge": BRIDGE,
    PREFIX + "route": ROUTE,
    PREFIX + "channel": CHANNEL,
}


def names(type_: str) -> list[str]:
    """The attributes of an entity type."""
    return list(ROWS[type_])


def shown(view: object, rows: Row, epoch_ns: int) -> dict[str, object]:
    """A view under its attributes' names."""
    return {name: _plain(read(view, epoch_ns)) for name, read in rows.items()}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
