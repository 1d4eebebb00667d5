"""What `sluice config` lists: queues, topics, subscriptions, bindings, policies."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from fnmatch import fnmatchcase

from broker.cli.terminal import ask, table
from broker.cli.terminal.table import Column, limit, number, size_limit, text


@dataclass(frozen=True, slots=True)
class EntityListing:
    """The kinds of entity in it, how they are shown and the attribute a filter is about."""

    kinds: tuple[str, ...]
    columns: tuple[Column, ...]
    about: str = "name"


def _set_here(value: object) -> str:
    """The settings of a policy as they were written."""
    if not isinstance(value, dict):
        return table.word(value)
    return table.word(", ".join(f"{name}: {given}" for name, given in value.items()))


NODES: tuple[Column, ...] = (
    text("name", "name"),
    text("kind", "kind"),
    text("dur", "durable"),
    number("max", "max_count", show=limit),
    number("max size", "max_size", show=size_limit),
    text("overflow", "overflow"),
    number("stop/resume", "flow_stop_count", "flow_resume_count", show=limit),
    number("stop/resume size", "flow_stop_size", "flow_resume_size", show=size_limit),
    text("stopped", "flowStopped"),
    number("msg", "depth_msgs"),
)
BINDINGS = (text("topic", "source"), text("queue", "target"))
POLICIES = (
    text("match", "match"),
    Column("settings", ("settings",), _set_here, right=False),
    text("from", "origin"),
)

LISTINGS: dict[str, EntityListing] = {
    "queues": EntityListing(("queue",), NODES),
    "exchanges": EntityListing(("topic",), NODES),
    "list": EntityListing(("queue", "topic"), NODES),
    "subscriptions": EntityListing(("subscription",), NODES),
    "bindings": EntityListing(("binding",), BINDINGS, "source"),
    "policies": EntityListing(("policy",), POLICIES, "match"),
}
HELP = {
    "queues": "queues",
    "exchanges": "topics",
    "list": "queues and topics",
    "subscriptions": "topics' subscriptions",
    "bindings": "which queues take what is sent to which topics",
    "policies": "policies, and the line each stands on",
}


def show(args: argparse.Namespace) -> int:
    """Prints ``args.listing``."""
    listing: EntityListing = args.listing
    wanted = table.attributes(listing.columns)
    with ask.connect(args) as management:
        found = [row for kind in listing.kinds for row in ask.rows(management, kind, wanted)]
    shown = [row for row in found if _is_wanted(str(row[listing.about]), args.filter)]
    print(table.as_json(shown) if args.json else table.plain(table.with_cell(listing.columns, shown), shown))
    return 0


def _is_wanted(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return not name.startswith("$")
    return fnmatchcase(name, pattern)
