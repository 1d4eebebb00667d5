"""What an event is: its kinds, the fields of each and the version of all of it.

This table is the source of the JSON Schema and of the tables in docs/observability.md. A new kind or
a new field is no new version: readers of a history pass over what they don't know. A field that is removed or
changes its meaning is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

VERSION = 1

Schema = dict[str, object]

NATURAL: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number", "minimum": 0}
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": ["string", "null"]}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class EventField:
    """One field of an event; ``always``: every event of its kind has it."""

    name: str
    type: Schema
    meaning: str
    always: bool = True

    def schema(self) -> Schema:
        return {"description": self.meaning, **self.type}


def _maybe(name: str, type_: Schema, meaning: str) -> EventField:
    return EventField(name, type_, meaning, always=False)


# What every event has, in this order.
COMMON = (
    EventField("v", {"const": VERSION}, "Version of this schema"),
    EventField("seq", {"type": "integer", "minimum": 1}, "Number of the event since the broker started"),
    EventField("time", {"type": "string", "format": "date-time"}, "When, in UTC, to the millisecond"),
    EventField("mono_ns", NATURAL, "The same on the machine's monotonic clock, in nanoseconds"),
    EventField("event", TEXT, "The kind"),
    EventField("node", NAME, "Queue, topic or subscription; null where it is about none, or about several"),
    _maybe("link", TEXT, "Link, by the id that `sluice stat` shows"),
    _maybe("connection", TEXT, "Connection, likewise"),
)

REASONS = ("count", "bytes", "operator", "budget", "shutdown")

_GATE = (
    EventField("reason", {"enum": list(REASONS)}, "What stopped it, or what it was stopped by until now"),
    _maybe("budget", TEXT, "Which budget: memory_limit, store_limit or temp_limit"),
    _maybe("held", FLAG, "True: nothing can be written there at present"),
    _maybe("held_by", TEXT, "The operators' pattern, where the reason is operator"),
    EventField("depth_msgs", NATURAL, "Depth in messages"),
    EventField("depth_bytes", NATURAL, "Depth in bytes"),
    EventField("stop_msgs", NATURAL, "Stop threshold in messages; 0: none"),
    EventField("resume_msgs", NATURAL, "Resume threshold in messages; 0: none"),
    EventField("stop_bytes", NATURAL, "Stop threshold in bytes; 0: none"),
    EventField("resume_bytes", NATURAL, "Resume threshold in bytes; 0: none"),
    EventField("promised_msgs", NATURAL, "Credit promised to producers and not used yet"),
    EventField("promised_bytes", NATURAL, "The same in bytes, as reserved"),
    EventField("stopped_count", NATURAL, "How often it has stopped since it came to be"),
    _maybe("skipped", NATURAL, "Changes of this gate since its last event that were left out"),
)
_COUNT = EventField("count", NATURAL, "How many since the last such event of the node")
_WHERE = (
    EventField("kind", {"enum": ["queue", "topic", "subscription"]}, "What the node is"),
    _maybe("address", TEXT, "The address of a subscription"),
)
_LINK = (
    EventField("role", {"enum": ["producer", "consumer"]}, "What the client does on the link"),
    EventField("name", TEXT, "The link's name, 255 characters of it at most"),
)

_KINDS: dict[str, tuple[str, tuple[EventField, ...]]] = {
    "started": (
        "The broker has started; `seq` begins anew",
        (
            EventField("version", TEXT, "The broker's version"),
            EventField("pid", NATURAL, "Its process"),
            EventField("sample_interval_ms", NATURAL, "How often nodes are sampled"),
        ),
    ),
    "set_aside": (
        "Something survived the last stop and can't be restored: it is kept, and not served",
        (
            EventField(
                "kind", TEXT, "`queue`, `topic`, `subscription`, `bridge`, `holds`, `bindings`, `unknown`"
            ),
            EventField("name", TEXT, "Its name"),
            EventField("messages", NATURAL, "How many messages it has"),
            EventField("reason", TEXT, "Why it can't be restored"),
        ),
    ),
    "idle_deleted": (
        "A queue or a subscription was deleted: nobody had used it for so long as `expire_after` says",
        (
            EventField("kind", {"enum": ["queue", "subscription"]}, "Which of the two"),
            _maybe("address", TEXT, "The address of a subscription"),
            EventField("idle_ms", NUMBER, "How long nobody had used it"),
            EventField("messages", NATURAL, "How many messages went with it"),
        ),
    ),
    "owner": (
        "This broker owns the replicated cell from now on",
        (
            EventField("member", TEXT, "Its name as a member of the cell"),
            EventField("epoch", NATURAL, "The number of its ownership, which rises with each take-over"),
        ),
    ),
    "suspended": (
        "The owner of a replicated cell confirms nothing: the cell's log doesn't answer",
        (EventField("reason", TEXT, "Why"),),
    ),
    "resumed": ("The owner of a replicated cell goes on", ()),
    "standby_joined": (
        "A standby of the replicated cell is there, as its owner sees it",
        (
            EventField("member", TEXT, "Its name"),
            EventField("version", TEXT, "Its version"),
        ),
    ),
    "standby_lost": (
        "A standby of the replicated cell is silent, or is none any more",
        (
            EventField("member", TEXT, "Its name"),
            EventField("standbys", NATURAL, "How many are left"),
        ),
    ),
    "stopping": ("The broker was told to stop", ()),
    "stopped": ("A gate closed: producers get no credit", _GATE),
    "opened": (
        "A gate opened",
        (
            *_GATE,
            EventField("stopped_ms", NUMBER, "How long it was stopped"),
            EventField("stopped_total_ms", NUMBER, "How long in all since the node came to be"),
        ),
    ),
    "operator": (
        "An operator stopped or started producers",
        (
            EventField("action", {"enum": ["stop", "start"]}, "Which of the two"),
            EventField("target", TEXT, "The name or pattern; `>` is all"),
            EventField("nodes", NATURAL, "How many nodes that are there it concerns"),
        ),
    ),
    "revoked": ("Credit was taken back from producers", (_COUNT,)),
    "parked": (
        "Messages without room were parked outside the node",
        (_COUNT, EventField("parked_msgs", NATURAL, "How many are parked now")),
    ),
    "rejected": ("Messages were refused: `when_full`, or the hard limit", (_COUNT,)),
    "dropped": (
        "Messages were dropped: a ring's oldest, `drop_newest`, a subscriber's limit, a purge",
        (_COUNT,),
    ),
    "paged_out": (
        "Messages went to disk",
        (_COUNT, EventField("paged_msgs", NATURAL, "How many of the node are on disk only")),
    ),
    "paged_in": (
        "Messages came back from disk",
        (_COUNT, EventField("paged_msgs", NATURAL, "How many of the node are on disk only")),
    ),
    "slow_consumer": (
        "A consumer settles more slowly than its policy asks for, or no longer does",
        (
            _maybe("slow", FLAG, "False: it is no longer slow"),
            _maybe("action", {"enum": ["notify", "detach"]}, "What is done about it"),
            _maybe("name", TEXT, "The link's name"),
            _maybe("rate", NUMBER, "Messages a second that it should settle"),
            _maybe("for_s", NUMBER, "For how long it didn't"),
            _maybe("unsettled", NATURAL, "What it holds"),
            _maybe("credit", NATURAL, "What it may be sent"),
            _maybe("ready", NATURAL, "What waits in the node"),
        ),
    ),
    "deadlock": (
        "Connections wait for each other in a ring",
        (
            _maybe("id", {"type": ["integer", "string"]}, "Which one; its `deadlock_cleared` has the same"),
            EventField("nodes", TEXTS, "The stopped nodes in it"),
            EventField("connections", TEXTS, "The connections in it"),
            _maybe("sentence", TEXT, "Who waits for whom, in words"),
        ),
    ),
    "deadlock_cleared": (
        "A deadlock has resolved",
        (
            _maybe("id", {"type": ["integer", "string"]}, "Which one"),
            _maybe("nodes", TEXTS, "The nodes that were in it"),
            _maybe("connections", TEXTS, "The connections that were in it"),
            _maybe("sentence", TEXT, "Who waited for whom, in words"),
        ),
    ),
    "bridge_refused": (
        "A node copied into another has no room for the copies: the first of them is refused",
        (
            EventField("bridge", TEXT, "Its name"),
            EventField("refused", NATURAL, "How many were refused so far"),
        ),
    ),
    "move_stopped": (
        "An operator's move ended before all had gone: what had not is where it was",
        (
            EventField("target", TEXT, "Where they went"),
            EventField("moved", NATURAL, "How many had gone over"),
            EventField("reason", TEXT, "What ended it"),
        ),
    ),
    "queue_moved": (
        "A queue has gone to another of several cells, with all its messages",
        (
            EventField("cell", NATURAL, "The number of the cell that has it now"),
            EventField("messages", NATURAL, "How many went along"),
        ),
    ),
    "route_up": (
        "A route to another broker is connected",
        (
            EventField("route", TEXT, "Its name"),
            EventField("url", TEXT, "The other broker, without user and password"),
        ),
    ),
    "route_down": (
        "A route has lost its connection; once for each loss, not for every try",
        (EventField("route", TEXT, "Its name"), EventField("reason", TEXT, "What happened")),
    ),
    "channel_fault": (
        "The system takes no datagrams of a channel",
        (EventField("channel", TEXT, "Its name"), EventField("reason", TEXT, "What it said")),
    ),
    "connection_opened": (
        "A client has opened its connection",
        (
            EventField("container", TEXT, "Its container-id, 255 characters of it at most"),
            EventField("peer", TEXT, "Its network address"),
        ),
    ),
    "connection_refused": (
        "A client is one too many of its user, at its listener or virtual host; told once a second at most",
        (
            EventField("container", TEXT, "Its container-id, 255 characters of it at most"),
            EventField("peer", TEXT, "Its network address"),
            EventField("user", TEXT, "Who it is"),
            EventField("limit", TEXT, "The limit, by its setting's name below `limits`"),
            EventField("most", NATURAL, "How many connections there may be"),
            EventField("count", NATURAL, "How many of this user were refused so since the last such event"),
        ),
    ),
    "connection_closed": ("A connection has ended", ()),
    "link_opened": (
        "A link was attached",
        (*_LINK, EventField("presettled", FLAG, "Messages on it are sent settled")),
    ),
    "link_closed": ("A link has gone", _LINK),
    "sample": (
        "What a node did in an interval, and how it stands; only where something changed",
        (
            *_WHERE,
            EventField("interval_ms", NUMBER, "How long the interval was"),
            EventField("received", NATURAL, "Messages that came in"),
            EventField("received_bytes", NATURAL, "Their bytes"),
            EventField("delivered", NATURAL, "Messages sent to consumers"),
            EventField(
                "settled",
                NATURAL,
                "Messages that left, in whatever way: what came in less the growth of depth",
            ),
            EventField("accepted", NATURAL, "Messages consumers accepted"),
            EventField("returned", NATURAL, "Messages consumers gave back: released or modified"),
            EventField("dropped", NATURAL, "Messages dropped"),
            EventField("refused", NATURAL, "Messages refused"),
            EventField(
                "received_total", NATURAL, "Messages that came in since the broker or the node came to be"
            ),
            EventField("settled_total", NATURAL, "Messages that left since then"),
            EventField("state", {"enum": ["open", "stopped"]}, "The gate"),
            EventField("depth_msgs", NATURAL, "Depth in messages"),
            EventField("depth_bytes", NATURAL, "Depth in bytes"),
            EventField("unsettled_msgs", NATURAL, "Of these, sent to consumers and not settled"),
            EventField("promised_msgs", NATURAL, "Credit promised to producers and not used yet"),
            EventField("promised_bytes", NATURAL, "The same in bytes, as reserved"),
            EventField("parked_msgs", NATURAL, "Messages parked outside the node"),
            EventField("producers", NATURAL, "Producer links"),
            EventField("blocked_producers", NATURAL, "Of these, without credit and in line for some"),
            EventField("consumers", NATURAL, "Consumer links"),
            EventField("stop_msgs", NATURAL, "Stop threshold in messages; 0: none"),
            EventField("resume_msgs", NATURAL, "Resume threshold in messages; 0: none"),
            EventField("stop_bytes", NATURAL, "Stop threshold in bytes; 0: none"),
            EventField("resume_bytes", NATURAL, "Resume threshold in bytes; 0: none"),
            EventField("stopped_count", NATURAL, "How often the gate has stopped since the node came to be"),
            EventField("stopped_total_ms", NUMBER, "How long it was stopped in all, until now"),
        ),
    ),
    "lost": (
        "Events that could not be kept: the disk was full or slow, or there were too many at once",
        (_COUNT, EventField("where", {"enum": ["file", "broker"]}, "For whom: the file alone, or everybody")),
    ),
}

# What an event of each kind is, and its own fields.
KINDS: Mapping[str, tuple[str, tuple[EventField, ...]]] = _KINDS


def event_schema() -> Schema:
    """The JSON Schema of one event; one line of the file, one message of the topic."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice flow event",
        "type": "object",
        "properties": {field.name: field.schema() for field in COMMON},
        "required": [field.name for field in COMMON if field.always],
        "oneOf": [_kind_schema(kind) for kind in KINDS],
    }


def _kind_schema(kind: str) -> Schema:
    meaning, fields = KINDS[kind]
    return {
        "title": kind,
        "description": meaning,
        "properties": {"event": {"const": kind}, **{field.name: field.schema() for field in fields}},
        "required": [field.name for field in fields if field.always],
    }


def reference() -> str:
    """Every kind and field as Markdown tables."""
    parts = ["### Every event", "", *_table(COMMON)]
    for kind, (meaning, fields) in KINDS.items():
        parts += ["", f"### {kind}", "", f"{meaning}."]
        parts += ["", *_table(fields)] if fields else []
    return "\n".join(parts)


def _table(fields: tuple[EventField, ...]) -> list[str]:
    rows = ["| field | type | meaning |", "|---|---|---|"]
    for field in fields:
        name = f"`{field.name}`" if field.always else f"`{field.name}`, if any"
        rows.append(f"| {name} | {_type_text(field.type)} | {field.meaning} |")
    return rows


def _type_text(type_: Schema) -> str:
    if "const" in type_:
        return str(type_["const"])
    if "enum" in type_:
        words = type_["enum"]
        assert isinstance(words, list)
        return ", ".join(f"`{word}`" for word in words)
    named = type_["type"]
    return " or ".join(named) if isinstance(named, list) else str(named)
