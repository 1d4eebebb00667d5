"""Which operations `$management` offers on each entity type, and the arguments they take (GET-OPERATIONS).

The draft's words: a map of operations for each type, each with a list of its arguments. Those that are
arguments of the request as a whole (``type``, ``name``, ``identity``) are everybody's and not listed; what
stands in the body as attributes is told by GET-ATTRIBUTES.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.manage.attributes import PREFIX, ROWS

# The type by which a request means the management node itself (§3.4 of the draft).
NODE = "org.amqp.management"

Operations = Mapping[str, list[str]]

READ: Operations = {"READ": []}
REMOVE: Operations = {**READ, "DELETE": []}
PAIR: Operations = {**READ, "CREATE": ["source", "target"], "DELETE": ["source", "target"]}
WHOLE: Operations = {**REMOVE, "CREATE": [], "UPDATE": [], "purge": ["dry_run"]}

OPERATIONS: dict[str, Operations] = {
    **dict.fromkeys(ROWS, READ),
    PREFIX + "queue": WHOLE,
    PREFIX + "topic": WHOLE,
    PREFIX + "subscription": {**REMOVE, "purge": ["dry_run"]},
    PREFIX + "connection": REMOVE,
    PREFIX + "link": REMOVE,
    PREFIX + "binding": PAIR,
    PREFIX + "bridge": {**REMOVE, "CREATE": ["selector", "durable"]},
    PREFIX + "broker": {
        **READ,
        "stop-producers": ["target"],
        "start-producers": ["target"],
        "explain": ["address"],
        "effect": ["name", "arguments"],
        "why": ["address"],
        "purge": ["name", "dry_run"],
        "apply": ["text", "file", "dry_run"],
        "move": ["source", "target", "count", "dry_run"],
        "browse": ["name", "offset", "count"],
        "delayed": ["name", "offset", "count"],
        "cancel": ["name", "number"],
        "groups": ["name", "offset", "count"],
        "reset-group": ["name", "group"],
        "readers": ["name", "offset", "count"],
        "forget-reader": ["name", "reader"],
        "discard": ["name"],
        "backup": ["target"],
        "backup-done": [],
        "events": ["count", "samples"],
        "audit": [],
        "log-levels": ["logger", "level"],
        "trace": ["connection", "frames", "seconds"],
        "move-cell": ["member"],
        "move-node": ["name", "cell", "wait"],
        "node-moved": ["name"],
    },
    NODE: {
        "QUERY": ["entityType", "offset", "count", "sort", "filter"],
        **{f"GET-{what}": ["entityType"] for what in ("TYPES", "ANNOTATIONS", "ATTRIBUTES", "OPERATIONS")},
        "GET-MGMT-NODES": [],
    },
}
