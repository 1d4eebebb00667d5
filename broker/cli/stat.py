"""Show what a running broker has and does.

-g the broker, -c connections, -q queues, -u subscriptions and receivers, -f flow control: who is
stopped, by what, and who waits, -r bridges, routes and channels. Without any of them: -q.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, cast

from broker.cli import arguments, ask, table
from broker.cli.table import Column, limit, number, size, size_limit, text

if TYPE_CHECKING:
    from broker.client.request import Management

INTERVAL_S = 2.0


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
        hidden = name.startswith("$") and not everything
        return not hidden and (pattern is None or fnmatchcase(name, pattern))


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
        text("connection", "identity"),
        text("container", "container"),
        text("peer", "peer"),
        text("user", "user"),
        number("sessions", "sessions"),
        number("links", "links"),
        number("msgIn", "messages_in"),
        number("msgOut", "messages_out"),
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
    ),
    about="name",
)
RECEIVERS = View(
    "Receivers",
    ("link",),
    (
        text("node", "node"),
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
    "general": (GENERAL,),
    "connections": (CONNECTIONS,),
    "queues": (QUEUES,),
    "subscriptions": (RECEIVERS,),
    "flow": (FLOW, SENDERS, DEADLOCKS),
    "routes": (BRIDGES, ROUTES, CHANNELS),
}

FLAGS = {
    "general": "-g",
    "connections": "-c",
    "queues": "-q",
    "subscriptions": "-u",
    "flow": "-f",
    "routes": "-r",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of qpid-stat, and -f."""
    parser.add_argument(
        "filter", nargs="?", metavar="FILTER", help="only nodes of this name; * and ? are wildcards"
    )
    arguments.add_broker(parser)
    for name, flag in FLAGS.items():
        parser.add_argument(flag, f"--{name}", action="store_true")
    parser.add_argument("-a", "--all", action="store_true", help="the broker's own and temporary nodes too")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=arguments.duration,
        const=INTERVAL_S,
        metavar="SECONDS",
        help=f"again and again, until interrupted (every {INTERVAL_S:g} s)",
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Prints once, or until it is interrupted."""
    chosen = [view for name, views in VIEWS.items() if getattr(args, name) for view in views] or [QUEUES]
    with ask.connect(args) as management:
        if args.watch is None:
            print(rendered(chosen, _fetched(management, chosen, args), args.json))
        elif sys.stdout.isatty() and not args.json:
            _watch_live(management, chosen, args)
        else:
            _watch_plainly(management, chosen, args)
    return 0


def rendered(views: list[View], tables: list[list[ask.Row]], as_json: bool) -> str:
    """All of the tables as one text."""
    if as_json:
        return table.as_json({view.title.lower(): rows for view, rows in zip(views, tables, strict=True)})
    parts = [
        f"{view.title}\n{table.plain(view.columns, rows)}"
        for view, rows in zip(views, tables, strict=True)
        if rows or not view.within
    ]
    return "\n\n".join(parts)


def _fetched(management: Management, views: list[View], args: argparse.Namespace) -> list[list[ask.Row]]:
    return [_rows(management, view, args) for view in views]


def _rows(management: Management, view: View, args: argparse.Namespace) -> list[ask.Row]:
    found = [row for kind in view.kinds for row in ask.rows(management, kind, view.attributes)]
    if view.within:
        return [each for row in found for each in cast("list[ask.Row]", row[view.within])]
    return [row for row in found if view.holds(row, args.filter, args.all)]


def _turns(seconds: float) -> Iterator[None]:
    while True:
        yield
        time.sleep(seconds)


def _watch_plainly(management: Management, views: list[View], args: argparse.Namespace) -> None:
    for _ in _turns(args.watch):
        print(rendered(views, _fetched(management, views, args), args.json), end="\n\n", flush=True)


def _watch_live(management: Management, views: list[View], args: argparse.Namespace) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as live:
        for _ in _turns(args.watch):
            parts = [
                table.rich(view.title, view.columns, rows)
                for view, rows in zip(views, _fetched(management, views, args), strict=True)
                if rows or not view.within
            ]
            foot = Text(f"{args.broker} every {args.watch:g} s, Ctrl-C ends it", style="dim")
            live.update(Group(*parts, foot), refresh=True)
