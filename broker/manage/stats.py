"""The table of a node's figures: how each is read and added up, and its names for Prometheus and lists.

Views, surveys, samples, sorted lists and `/metrics` follow from the rows. A new figure is a row here, a
field of ``QueueView`` with its type, and a place in ``attributes.NODE``, whose order clients rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

from broker.engine.grouping import groups_of
from broker.engine.node import Node
from broker.engine.transaction import Transaction
from broker.flow.gate import Gate
from broker.units import SECOND_NS

# Reads a figure of any node at a monotonic time; the last argument is whether an operator holds the node.
Read = Callable[[Node, int, bool], Any]
# Reads a figure of a node by itself at a monotonic time.
Count = Callable[[Node, int], Any]


@dataclass(frozen=True, slots=True)
class Stat:
    """One figure of a node. ``path`` is where a ``QueueView`` has it.

    ``whole`` reads it of any node, with those that take from it. ``alone`` is the short way for a node with
    no others above or below it and all its messages in memory: a path of its attributes, a function, 0 if it
    is always that, or None where no way is shorter. ``metric`` is the family's name behind its prefix, with
    the `_total` of a counter, or '' for none, and ``help`` its text; where it is ``sparse``, 0 means that
    there is none, and no sample says so. ``outcome`` is the label in a family of several figures.
    """

    path: str
    whole: Read
    alone: str | Count | Literal[0] | None = None
    metric: str = ""
    help: str = ""
    sparse: bool = False
    outcome: str = ""


def parts_of(node: Node) -> tuple[Node, ...]:
    """Return a node and those that take from it: a topic's messages lie at its subscriptions."""
    return (node, *node.subscriptions)


def waiting_msgs(node: Node, now_ns: int = 0) -> int:
    """Count the messages no consumer holds: ready, on their way to disk, and on disk only."""
    queue = node.queue
    spooled = 0 if node.spool is None else node.spool.count
    return queue.ready + queue.pending + queue.behind + queue.aside + spooled


# --- ways to add up


def _own(path: str, at: str, metric: str = "", text: str = "", *, sparse: bool = False) -> Stat:
    """A figure of the node itself, whoever takes from it."""
    get = attrgetter(at)
    return Stat(path, lambda node, now_ns, held: get(node), at, metric, text, sparse)


def _over(
    combine: Callable[[Iterable[Any]], Any], path: str, at: str, metric: str = "", text: str = ""
) -> Stat:
    """A figure of all parts of a node together."""
    get = attrgetter(at)

    def whole(node: Node, now_ns: int, held: bool) -> Any:
        return combine(map(get, parts_of(node))) if node.subscriptions else get(node)

    return Stat(path, whole, at, metric, text)


def _summed(count: Count, path: str, metric: str, text: str, alone: Count | Literal[0] | None = None) -> Stat:
    """A sum over all parts of a node of something that is counted out."""

    def whole(node: Node, now_ns: int, held: bool) -> Any:
        if not node.subscriptions:
            return count(node, now_ns)
        return sum(count(part, now_ns) for part in parts_of(node))

    return Stat(path, whole, count if alone is None else alone, metric, text)


def _read(path: str, count: Count, alone: str | Count | Literal[0], metric: str = "", text: str = "") -> Stat:
    """A figure with a rule of its own, and perhaps another one that is less work for a lone node."""
    return Stat(path, lambda node, now_ns, held: count(node, now_ns), alone, metric, text)


def _counter(name: str, metric: str = "", text: str = "") -> Stat:
    return _own(f"counters.{name}", name, metric, text)


def _outcome(name: str) -> Stat:
    """Messages that consumers settled so: one family for all outcomes."""
    return replace(_counter(name, SETTLED, SETTLED_HELP), outcome=name)


def _grouped(count: Count, path: str, metric: str, text: str) -> Stat:
    """A sum that only nodes of a kind have: with message groups, or last values."""
    return replace(_summed(count, path, metric, text), sparse=True)


def _setting(name: str, metric: str, text: str) -> Stat:
    return _own(f"settings.{name}", f"settings.{name}", metric, text, sparse=True)


# --- readers


def _stopped_s(node: Node, now_ns: int, held: bool) -> float:
    if not node.subscriptions:
        return _stopped_alone_s(node, now_ns)
    return sum(_closed_ns(part.gate, now_ns) for part in parts_of(node)) / SECOND_NS


def _stopped_alone_s(node: Node, now_ns: int) -> float:
    return _closed_ns(node.gate, now_ns) / SECOND_NS


def _closed_ns(gate: Gate, now_ns: int) -> int:
    return gate.closed_total_ns + (now_ns - gate.closed_since_ns if gate.closed else 0)


def _held(node: Node, now_ns: int, held: bool) -> bool:
    return held


def _is_enforced(node: Node, now_ns: int) -> bool:
    return _is_enforced_alone(node, now_ns) and all(
        part.gate.enforced for part in node.subscriptions if node.heeds(part)
    )


def _is_enforced_alone(node: Node, now_ns: int) -> bool:
    return node.gate.enforced or node.never_blocks_publishers


def _blocked(node: Node, now_ns: int) -> int:
    """Blocked links of the node; of a subscription, those its gate holds back."""
    if not node.is_subscription:
        return node.allocator.blocked()
    return sum(topic.allocator.blocked() for topic in node.topics) if node.gate.closed else 0


def _blocked_alone(node: Node, now_ns: int) -> int:
    allocator = node.allocator
    return allocator.blocked() if allocator.accounts else 0


def _producers(node: Node, now_ns: int) -> int:
    return sum(len(owner.allocator.accounts) for owner in node.owners())


def _producers_alone(node: Node, now_ns: int) -> int:
    return len(node.allocator.accounts)


def _consumers(node: Node, now_ns: int) -> int:
    return len(node.consumers)


def _slow_consumers(node: Node, now_ns: int) -> int:
    return sum(each.slow for each in node.consumers) if node.consumers else 0


def _subscriptions(node: Node, now_ns: int) -> int:
    return len(node.subscriptions)


def _late_msgs(node: Node, now_ns: int) -> int:
    accounts = node.allocator.accounts
    return sum(account.late_count for account in accounts) if accounts else 0


def _paged_msgs(node: Node, now_ns: int) -> int:
    return 0 if node.spool is None else node.spool.count


def _paged_bytes(node: Node, now_ns: int) -> int:
    return 0 if node.spool is None else node.spool.nbytes


def delayed_msgs(node: Node, now_ns: int = 0) -> int:
    """Count the messages that wait for their time."""
    return 0 if node.schedule is None else node.schedule.count


def _delayed_next_ns(node: Node, now_ns: int) -> int:
    """When the first of a node's delayed messages is due, or expires; 0 where it has none."""
    times = [part.schedule.next_ns() for part in parts_of(node) if part.schedule is not None]
    return min(filter(None, times), default=0)


def _transactions(node: Node) -> set[Transaction]:
    """Return the open transactions that have messages of a node, or of those that take from it."""
    return {each for part in parts_of(node) if part.transactions is not None for each in part.transactions}


def _open_transactions(node: Node, now_ns: int) -> int:
    return len(_transactions(node))


def _oldest_transaction_ns(node: Node, now_ns: int) -> int:
    return min((each.began_ns for each in _transactions(node)), default=0)


def _groups(node: Node, now_ns: int) -> int:
    groups = groups_of(node)
    return 0 if groups is None else groups.owned()


def _stuck_groups(node: Node, now_ns: int) -> int:
    groups = groups_of(node)
    return 0 if groups is None else groups.stuck_groups


def _stream_msgs(node: Node, now_ns: int) -> int:
    return 0 if node.stream is None else max(node.stream.visible - node.stream.first_offset, 0)


def _first_offset(node: Node, now_ns: int) -> int:
    return 0 if node.stream is None else node.stream.first_offset


def _next_offset(node: Node, now_ns: int) -> int:
    # What readers may see: of what isn't on disk yet nobody knows whether it stays.
    return 0 if node.stream is None else node.stream.visible


def _stream_id(node: Node, now_ns: int) -> int:
    return 0 if node.stream is None else node.stream.id


def _last_values(node: Node, now_ns: int) -> int:
    return 0 if node.last_values is None else len(node.last_values.newest)


def _group_stuck_msgs(node: Node, now_ns: int) -> int:
    order = node.queue.order
    return 0 if order is None else order.stuck


def _rate_out(node: Node, now_ns: int) -> float:
    return node.rate_out + sum(part.rate_out for part in node.subscriptions)


# --- the table, in the order of the families of `/metrics`

SETTLED, SETTLED_HELP = "settled_messages_total", "Messages settled by consumers"

STATS: tuple[Stat, ...] = (
    _over(sum, "depth_msgs", "gate.depth_msgs", "depth_messages", "Messages enqueued and not yet dequeued"),
    _over(sum, "depth_bytes", "gate.depth_bytes", "depth_bytes", "Their encoded size"),
    _summed(waiting_msgs, "ready_msgs", "ready_messages", "Messages no consumer holds"),
    _over(sum, "unsettled_msgs", "queue.acquired", "unsettled_messages", "Messages a consumer holds"),
    _over(max, "peak_msgs", "gate.peak_msgs", "peak_messages", "Most messages there were at once"),
    _over(max, "peak_bytes", "gate.peak_bytes", "peak_bytes", "Most bytes there were at once"),
    _over(any, "flow_stopped", "gate.closed", "flow_stopped", "1 while producers are stopped"),
    Stat("held", _held, None, "held_by_operator", "1 while an operator stops its producers"),
    _read("enforced", _is_enforced, _is_enforced_alone, "flow_enforced", "1 while its thresholds count"),
    _over(
        sum,
        "flow_stopped_count",
        "gate.closed_count",
        "flow_stopped_total",
        "How often producers were stopped",
    ),
    Stat(
        "flow_stopped_seconds",
        _stopped_s,
        _stopped_alone_s,
        "flow_stopped_seconds_total",
        "How long in all",
    ),
    _setting("flow_stop_count", "flow_stop_messages", "Stop threshold, if any"),
    _setting("flow_resume_count", "flow_resume_messages", "Resume threshold, if any"),
    _setting("flow_stop_size", "flow_stop_bytes", "Stop threshold, if any"),
    _setting("flow_resume_size", "flow_resume_bytes", "Resume threshold, if any"),
    _setting("max_count", "limit_messages", "Hard limit, if any"),
    _setting("max_size", "limit_bytes", "Hard limit, if any"),
    _own("promised_msgs", "gate.promised_msgs", "promised_credit", "Credit granted and not yet used"),
    _own("promised_bytes", "gate.promised_bytes", "promised_bytes", "Room reserved for it"),
    _read("blocked_producers", _blocked, _blocked_alone, "blocked_producers", "Producer links that wait"),
    _read("producers", _producers, _producers_alone, "producers", "Producer links"),
    _summed(_consumers, "consumers", "consumers", "Consumer links"),
    _read("subscriptions", _subscriptions, 0, "subscriptions", "Subscriptions of a topic"),
    _summed(_slow_consumers, "slow_consumers", "slow_consumers", "Consumer links that are slow"),
    _own("parked_msgs", "allocator.parked_msgs", "parked_messages", "Messages waiting outside the queue"),
    _own("parked_bytes", "allocator.parked_bytes", "parked_bytes", "Their encoded size"),
    _own(
        "uncommitted_msgs",
        "allocator.uncommitted_msgs",
        "uncommitted_messages",
        "Messages posted in open transactions",
        sparse=True,
    ),
    _own(
        "uncommitted_bytes",
        "allocator.uncommitted_bytes",
        "uncommitted_bytes",
        "Their encoded size",
        sparse=True,
    ),
    _read("open_transactions", _open_transactions, _open_transactions),
    _read("oldest_transaction_ns", _oldest_transaction_ns, _oldest_transaction_ns),
    _own(
        "overrun_msgs",
        "overrun",
        "overrun_messages_total",
        "Pre-settled messages taken in beyond the credit",
    ),
    _read(
        "late_msgs",
        _late_msgs,
        _late_msgs,
        "late_messages",
        "Messages its present producers sent on revoked credit",
    ),
    _own(
        "revocations", "allocator.revoked_count", "revocations_total", "How often idle credit was taken back"
    ),
    _counter("received", "received_messages_total", "Messages enqueued"),
    _counter("received_bytes", "received_bytes_total", "Their encoded size"),
    _counter("delivered", "delivered_messages_total", "Messages sent to consumers"),
    _outcome("accepted"),
    _outcome("rejected"),
    _outcome("released"),
    _outcome("modified"),
    _counter("refused", "refused_messages_total", "Messages refused for want of room"),
    _counter("dropped", "dropped_messages_total", "Messages dropped"),
    _counter("unrouted", "unrouted_messages_total", "Messages to a topic that no subscription took"),
    _counter("expired", "expired_messages_total", "Messages that expired"),
    _counter("dead_lettered", "dead_lettered_messages_total", "Messages that became dead letters"),
    _counter("duplicated", "duplicate_messages_total", "Messages dropped as duplicates"),
    _counter("replaced", "replaced_messages_total", "Messages that a newer one of their key replaced"),
    _counter(
        "timed_out", "timed_out_messages_total", "Messages taken back from consumers (consumer_timeout)"
    ),
    _summed(_paged_msgs, "paged_msgs", "paged_messages", "Messages on disk only", 0),
    _summed(_paged_bytes, "paged_bytes", "paged_bytes", "Their encoded size", 0),
    _summed(delayed_msgs, "delayed_msgs", "delayed_messages", "Messages that wait for their time"),
    _read("delayed_next_ns", _delayed_next_ns, _delayed_next_ns),
    _grouped(_groups, "groups", "message_groups", "Message groups that have a consumer"),
    _grouped(
        _stuck_groups, "stuck_groups", "stuck_message_groups", "Message groups that wait for their consumer"
    ),
    _grouped(
        _group_stuck_msgs,
        "group_stuck_msgs",
        "group_stuck_messages",
        "Ready messages that were passed over: they wait for the consumer of their group",
    ),
    _grouped(_last_values, "last_values", "last_values", "Keys that have a value"),
    _grouped(_stream_msgs, "stream_msgs", "stream_messages", "Messages that a stream has"),
    _grouped(_first_offset, "first_offset", "stream_first_offset", "Offset of a stream's first message"),
    _grouped(_next_offset, "next_offset", "stream_next_offset", "Offset of a stream's next message"),
    _read("stream_id", _stream_id, _stream_id),
    # Rates are for people: Prometheus makes its own of the counters.
    _own("rate_in", "rate_in"),
    _read("rate_out", _rate_out, "rate_out"),
)
BY_PATH: Mapping[str, Stat] = {stat.path: stat for stat in STATS}
# Attributes that have another name than their figure, which users of Qpid know.
OTHER_NAMES = {
    "flowStopped": "flow_stopped",
    "flowStoppedCount": "flow_stopped_count",
    "flowStoppedSeconds": "flow_stopped_seconds",
    "flowEnforced": "enforced",
}
# The attributes that lists are sorted by as a rule: each of them is read without the whole view of a node.
SORTABLE = (
    *("name", "depth_msgs", "depth_bytes", "flowStopped", "flow_stopped", "flowStoppedCount"),
    *("promised_msgs", "rate_in", "rate_out", "received", "delivered", "consumers", "producers"),
)


def stat_of(attribute: str) -> Stat:
    """Return the row of an attribute of a node; KeyError if it is no figure."""
    name = OTHER_NAMES.get(attribute, attribute)
    return BY_PATH.get(name) or BY_PATH[f"counters.{name}"]
