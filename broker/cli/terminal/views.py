"""What `sluice stat` shows: one table a view, made of the attributes of one kind of entity, or of several."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from broker.cli.terminal import ask, table
from broker.cli.terminal.table import Column, limit, number, size, size_limit, text


@dataclass(frozen=True, slots=True)
class View:
    """One table: its heading, the kinds of entity in it and its columns.

    ``about`` is the attribute that names a row's node, empty where a row is about none; ``role`` is
    what a link must be to stand in it. ``within``: the rows are the maps in this attribute, and without
    any the table isn't shown.
    """

    title: str
    kinds: tuple[str, ...]
    columns: tuple[Column, ...]
    about: str = ""
    role: str = ""
    within: str = ""

    @property
    def attributes(self) -> list[str]:
        """What to ask for."""
        if self.within:
            return [self.within]
        return [*table.attributes(self.columns), *(["role"] if self.role else [])]

    def holds(self, row: ask.Row, pattern: str | None, everything: bool) -> bool:
        """Whether a row belongs: by its role and by the name of its node."""
        if self.role and row["role"] != self.role:
            return False
        name = row.get(self.about)
        if not isinstance(name, str):
            return True
        hidden = name.startswith("$") and not everything and name != pattern
        return not hidden and (pattern is None or fnmatchcase(name, pattern))

    def sorting(self, wanted: str) -> list[str]:
        """The attributes of the column that has this heading or attribute; none if there is none."""
        for column in self.columns:
            if wanted.lower() in (column.title.lower(), *map(str.lower, column.names)):
                return list(column.names)
        return []


NODES = ("queue", "topic", "subscription")

GENERAL = View(
    "Broker",
    ("broker",),
    (
        text("broker", "name"),
        text("version", "version"),
        Column("pid", ("pid",), str),
        number("uptime s", "uptime_s"),
        number("connections", "connections"),
        number("queues", "queues"),
        number("topics", "topics"),
        number("messages", "depth_msgs"),
        number("bytes", "depth_bytes", show=size),
        number("stopped", "stopped_nodes"),
        number("blocked", "blocked_producers"),
        number("memory", "memory_bytes", show=size),
        text("store", "storeState"),
        number("durable", "store_bytes", show=size),
        number("paged", "temp_bytes", show=size),
    ),
)
CONNECTIONS = View(
    "Connections",
    ("connection",),
    (
        text("id", "identity"),
        text("container", "container"),
        text("peer", "peer"),
        text("user", "user"),
        text("by", "mechanism"),
        text("tls", "tls"),
        number("sessions", "sessions"),
        number("links", "links"),
        number("msgIn", "messages_in"),
        number("msgOut", "messages_out"),
    ),
)
SESSIONS = View(
    "Sessions",
    ("session",),
    (
        text("id", "identity"),
        text("connection", "connection"),
        text("container", "container"),
        text("peer", "peer"),
        number("channel", "channel"),
        number("producers", "producers"),
        number("consumers", "consumers"),
        number("unsettled", "unsettled"),
    ),
)
QUEUES = View(
    "Queues",
    NODES,
    (
        text("queue", "name"),
        text("kind", "kind"),
        text("dur", "durable"),
        number("msg", "depth_msgs"),
        number("msgIn", "received"),
        number("msgOut", "delivered"),
        number("bytes", "depth_bytes", show=size),
        number("in/s", "rate_in"),
        number("out/s", "rate_out"),
        number("prod", "producers"),
        number("cons", "consumers"),
        number("unrouted", "unrouted"),
    ),
    about="name",
)
RECEIVERS = View(
    "Receivers",
    ("link",),
    (
        text("node", "node"),
        text("id", "identity"),
        text("link", "link"),
        text("container", "container"),
        text("peer", "peer"),
        number("credit", "credit"),
        number("unsettled", "unsettled"),
        number("window", "window_limit", show=limit),
        text("shut", "shut"),
        number("settled/s", "settle_rate"),
        text("slow", "slow"),
        number("delivered", "delivered"),
        number("settled", "settled"),
    ),
    about="node",
    role="consumer",
)
FLOW = View(
    "Flow",
    NODES,
    (
        text("node", "name"),
        text("stopped", "flowStopped"),
        text("by", "flowStoppedBy"),
        number("for s", "flowStoppedFor"),
        number("msg", "depth_msgs"),
        number("stop/resume", "flow_stop_count", "flow_resume_count", show=limit),
        number("bytes", "depth_bytes", show=size),
        number("stop/resume", "flow_stop_size", "flow_resume_size", show=size_limit),
        number("promised", "promised_msgs"),
        number("blocked", "blocked_producers"),
        number("parked", "parked_msgs"),
        number("stops", "flowStoppedCount"),
        number("stopped s", "flowStoppedSeconds"),
    ),
    about="name",
)
SENDERS = View(
    "Senders",
    ("link",),
    (
        text("node", "node"),
        text("id", "identity"),
        text("link", "link"),
        text("container", "container"),
        text("peer", "peer"),
        text("blocked", "blocked"),
        text("since", "blockedSince"),
        number("credit", "credit"),
        number("window", "window"),
        number("withdrawn", "withdrawn"),
        number("parked", "parked"),
        number("used", "used"),
    ),
    about="node",
    role="producer",
)

DEADLOCKS = View(
    "Deadlocks",
    ("broker",),
    (
        text("since", "since"),
        text("nodes", "nodes"),
        text("connections", "connections"),
        text("who waits for whom", "sentence"),
    ),
    within="deadlocks",
)
ASIDE = View(
    "Set aside",
    ("broker",),
    (
        text("kind", "kind"),
        text("name", "name"),
        number("messages", "depth_msgs"),
        number("bytes", "depth_bytes", show=size),
        text("why", "reason"),
    ),
    within="set_aside",
)
BRIDGES = View(
    "Bridges",
    ("bridge",),
    (
        text("bridge", "name"),
        text("from", "from"),
        text("to", "to"),
        text("state", "state"),
        text("reason", "reason"),
        text("crosses", "crosses"),
        text("dur", "durable"),
        number("copied", "copied"),
        number("passed by", "passed_by"),
        number("refused", "refused"),
    ),
    about="from",
)
ROUTES = View(
    "Routes",
    ("route",),
    (
        text("route", "name"),
        text("dir", "direction"),
        text("local", "local"),
        text("url", "url"),
        text("remote", "remote"),
        text("state", "state"),
        text("since", "since"),
        number("forwarded", "forwarded"),
        number("backlog", "backlog"),
        number("unsettled", "unsettled"),
        number("credit", "credit"),
        number("rejected", "rejected"),
        number("returned", "returned"),
        text("last error", "lastError"),
    ),
    about="local",
)
CHANNELS = View(
    "Channels",
    ("channel",),
    (
        text("channel", "name"),
        text("topic", "topic"),
        text("to", "to"),
        number("max rate", "max_rate", show=size),
        text("flow", "flow_control"),
        text("state", "state"),
        number("sent", "sent"),
        number("bytes", "sent_bytes", show=size),
        number("backlog", "backlog"),
        number("waiting", "waiting"),
        number("too large", "too_large"),
        number("dropped", "dropped"),
        text("last error", "lastError"),
    ),
    about="topic",
)

# What each flag shows.
VIEWS: dict[str, tuple[View, ...]] = {
    "general": (GENERAL, ASIDE),
    "connections": (CONNECTIONS,),
    "sessions": (SESSIONS,),
    "queues": (QUEUES,),
    "subscriptions": (RECEIVERS,),
    "flow": (FLOW, SENDERS, DEADLOCKS),
    "routes": (BRIDGES, ROUTES, CHANNELS),
}

FLAGS = {
    "general": "-g",
    "connections": "-c",
    "sessions": "-s",
    "queues": "-q",
    "subscriptions": "-u",
    "flow": "-f",
    "routes": "-r",
}
