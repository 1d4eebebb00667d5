"""Notices what is worth an event: gates that change, counters that moved, what others tell.

On the engine's thread, with time as an argument. Nothing here is called once a message: gates report
their changes, everything else is a comparison of counters, a few hundred nodes at a time, once an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.gate import Gate

OWN = "$sluice/"
# The broker's topic of events; nobody else may send to it.
TOPIC = "$sluice/events"

# Gate changes of one node that are told in an interval one by one; of more the last one is.
MOST_CHANGES = 20
# Events that may wait for the end of their batch.
MOST_PENDING = 20_000
# Nodes compared in one turn.
NODES_AT_ONCE = 100
MILLISECOND_NS = 1_000_000

# (seq, kind, when, node, fields)
Event = tuple[int, str, int, str | None, Mapping[str, object]]


class Seen:
    """A node's numbers when it was last looked at."""

    __slots__ = (
        "accepted",
        "changes",
        "counters",
        "delivered",
        "depth",
        "dropped",
        "gauges",
        "paged_in",
        "paged_out",
        "parked",
        "reason",
        "received",
        "received_bytes",
        "refused",
        "returned",
        "revoked",
        "sampled_ns",
        "settled",
        "skipped",
        "told_closed",
    )

    def __init__(self, now_ns: int) -> None:
        self.counters = 0
        self.gauges: tuple[object, ...] = ()
        self.sampled_ns = now_ns
        self.received = self.received_bytes = self.delivered = self.accepted = self.settled = self.depth = 0
        self.returned = self.dropped = self.refused = self.revoked = self.parked = 0
        self.paged_out = self.paged_in = 0
        self.changes = self.skipped = 0
        self.told_closed = False
        self.reason = ""


class NodeObserver:
    """Collects events of one engine in batches; ``take`` hands a batch over.

    ``arm`` is called when the first event of a batch is there, so that the caller takes it soon.
    ``held_by(name)`` names the operators' pattern that holds a node.
    """

    def __init__(self, engine: Engine, arm: Callable[[], None], held_by: Callable[[str], str]) -> None:
        self.engine = engine
        self.arm = arm
        self.held_by = held_by
        self.seq = 0
        self.lost = 0
        self.pending: list[Event] = []
        self._seen: dict[Node, Seen] = {}
        self._scan: Iterator[Node] | None = None
        # When the present look at all nodes began, and the one before it.
        self._began_ns = self._sampled_ns = engine.turn.now_ns

    def listen(self) -> None:
        """From now on the engine tells us; of what was before, only that a gate is closed is told."""
        self._began_ns = self._sampled_ns = self.engine.turn.now_ns
        for node in self.engine.topology.every_node():
            seen = self._seen[node] = Seen(self.engine.turn.now_ns)
            _remember(node, seen)
            if node.gate.closed:
                self._gate_event(node, seen)
        self.engine.changes.on_gate = self.on_gate
        self.engine.changes.emit = self.tell

    def tell(self, kind: str, node: Node | None, fields: Mapping[str, object]) -> None:
        """The engine's port (docs/observability.md)."""
        if node is None:
            if kind in ("stopped", "opened"):
                fields = self._budget_fields(str(fields["budget"]))
            self._add(kind, None, fields)
        elif not node.name.startswith(OWN):
            self._add(kind, node.name, fields)

    def on_gate(self, node: Node, now_ns: int) -> None:
        """A gate opened or closed. One that flaps is told of now and then, with how often it did."""
        seen = self._seen.get(node)
        if seen is None:
            seen = self._seen[node] = Seen(self._began_ns)
        seen.changes += 1
        if seen.changes > MOST_CHANGES:
            seen.skipped += 1
            return
        self._gate_event(node, seen)

    def take(self) -> list[Event]:
        """The batch, whose end says how many events there was no place for."""
        batch, self.pending = self.pending, []
        if self.lost:
            batch.append(
                (self.seq, "lost", self.engine.turn.now_ns, None, {"count": self.lost, "where": "broker"})
            )
            self.lost = 0
        return batch

    def look(self, now_ns: int) -> bool:
        """Compare the next nodes; true if there are more to compare in a turn soon."""
        if self._scan is None:
            self._scan = iter(list(self.engine.topology.every_node()))
            self._sampled_ns, self._began_ns = self._began_ns, now_ns
            self._forget_deleted()
        left = NODES_AT_ONCE
        for node in islice(self._scan, NODES_AT_ONCE):
            left -= 1
            if not node.deleted and not node.name.startswith(OWN):
                self._compare(node, now_ns)
        if left:
            self._scan = None
        return not left

    def _add(self, kind: str, node: str | None, fields: Mapping[str, object]) -> None:
        self.seq += 1
        if len(self.pending) >= MOST_PENDING:
            self.lost += 1
            return
        if not self.pending:
            self.arm()
        self.pending.append((self.seq, kind, self.engine.turn.now_ns, node, fields))

    def _forget_deleted(self) -> None:
        for node in [node for node in self._seen if node.deleted]:
            del self._seen[node]

    # --- gates

    def _gate_event(self, node: Node, seen: Seen) -> None:
        gate = node.gate
        if node.deleted or node.name.startswith(OWN):
            return
        if gate.closed:
            seen.reason = self._reason(gate)
        elif not seen.reason:
            seen.reason = "count" if gate.stop_msgs else "bytes"
        fields: dict[str, object] = {"reason": seen.reason}
        if seen.reason == "operator":
            fields["held_by"] = self.held_by(node.address)
        fields |= _gate_fields(gate)
        if not gate.closed:
            fields |= _opened_fields(gate, self.engine.turn.now_ns)
        if seen.skipped:
            fields["skipped"] = seen.skipped
            seen.skipped = 0
        seen.told_closed = gate.closed
        self._add("stopped" if gate.closed else "opened", node.name, fields)

    def _reason(self, gate: Gate) -> str:
        if gate.held:
            return "shutdown" if self.engine.delivery.winding_down else "operator"
        return "count" if gate.stop_msgs and gate.depth_msgs >= gate.stop_msgs else "bytes"

    def _budget_fields(self, name: str) -> dict[str, object]:
        engine = self.engine
        gate = next(
            each
            for each in (engine.depths.memory, engine.depths.disk, engine.depths.temp)
            if each.name == name
        )
        fields: dict[str, object] = {"reason": "budget", "budget": name}
        if gate.held:
            fields["held"] = True
        fields |= _gate_fields(gate)
        return fields if gate.closed else fields | _opened_fields(gate, engine.turn.now_ns)

    # --- counters

    def _compare(self, node: Node, now_ns: int) -> None:
        """Tell what moved since the last time."""
        allocator = node.allocator
        counters = (
            node.received
            + node.delivered
            + node.accepted
            + node.rejected
            + node.released
            + node.modified
            + node.dropped
            + node.expired
            + node.refused
            + node.parked
            + node.gate.closed_count
            + allocator.revoked_count
        )
        gauges = (node.gate.depth_msgs, allocator.promised_msgs, len(allocator.accounts), len(node.consumers))
        seen = self._seen.get(node)
        if seen is None:
            seen = self._seen[node] = Seen(self._sampled_ns)
        elif seen.counters == counters and seen.gauges == gauges and node.spool is None:
            seen.sampled_ns = now_ns
            seen.changes = 0
            return
        if seen.told_closed != node.gate.closed or seen.skipped:
            self._gate_event(node, seen)
        seen.changes = 0
        if seen.counters != counters or seen.gauges != gauges:
            self._sample(node, seen, now_ns)
        self._count("revoked", node, allocator.revoked_count - seen.revoked)
        self._count("parked", node, node.parked - seen.parked, parked_msgs=allocator.parked_msgs)
        self._count("rejected", node, node.refused - seen.refused)
        self._count("dropped", node, node.dropped - seen.dropped)
        if node.spool is not None:
            self._count("paged_out", node, node.spool.paged_out - seen.paged_out, paged_msgs=node.spool.count)
            self._count("paged_in", node, node.spool.paged_in - seen.paged_in, paged_msgs=node.spool.count)
        _remember(node, seen)
        seen.counters, seen.gauges, seen.sampled_ns = counters, gauges, now_ns

    def _count(self, kind: str, node: Node, count: int, **fields: object) -> None:
        if count > 0:
            self._add(kind, node.name, {"count": count, **fields})

    def _sample(self, node: Node, seen: Seen, now_ns: int) -> None:
        gate, allocator = node.gate, node.allocator
        settled = _settled(node, seen)
        seen.settled += settled
        fields: dict[str, object] = {
            "kind": node.kind,
            "interval_ms": (now_ns - seen.sampled_ns) / MILLISECOND_NS,
            "received": node.received - seen.received,
            "received_bytes": node.received_bytes - seen.received_bytes,
            "delivered": node.delivered - seen.delivered,
            "settled": settled,
            "accepted": node.accepted - seen.accepted,
            "returned": node.released + node.modified - seen.returned,
            "dropped": node.dropped - seen.dropped,
            "refused": node.refused - seen.refused,
            "received_total": node.received,
            "settled_total": seen.settled,
            "state": gate.state,
            "unsettled_msgs": node.queue.acquired,
            **_gate_fields(gate),
            "parked_msgs": allocator.parked_msgs,
            "producers": len(allocator.accounts),
            "blocked_producers": allocator.blocked(),
            "consumers": len(node.consumers),
            "stopped_total_ms": _stopped_ns(gate, now_ns) / MILLISECOND_NS,
        }
        if node.is_topic:
            # A topic's own gate promises nothing: what its publishers hold is the allocator's.
            fields["promised_msgs"] = allocator.promised_msgs
        if node.address != node.name:
            fields["address"] = node.address
        self._add("sample", node.name, fields)


def _remember(node: Node, seen: Seen) -> None:
    seen.received, seen.received_bytes = node.received, node.received_bytes
    seen.delivered, seen.accepted, seen.depth = node.delivered, node.accepted, node.gate.depth_msgs
    seen.returned = node.released + node.modified
    seen.dropped, seen.refused, seen.parked = node.dropped, node.refused, node.parked
    seen.revoked = node.allocator.revoked_count
    if node.spool is not None:
        seen.paged_out, seen.paged_in = node.spool.paged_out, node.spool.paged_in


def _settled(node: Node, seen: Seen) -> int:
    """Messages that have left since: moved and purged ones are in no counter, but gone from the depth."""
    if node.is_topic:
        return node.received - seen.received
    return max(node.received - seen.received - (node.gate.depth_msgs - seen.depth), 0)


def _stopped_ns(gate: Gate, now_ns: int) -> int:
    return gate.closed_total_ns + (now_ns - gate.closed_since_ns if gate.closed else 0)


def _gate_fields(gate: Gate) -> dict[str, object]:
    return {
        "depth_msgs": gate.depth_msgs,
        "depth_bytes": gate.depth_bytes,
        "stop_msgs": gate.stop_msgs,
        "resume_msgs": gate.resume_msgs,
        "stop_bytes": gate.stop_bytes,
        "resume_bytes": gate.resume_bytes,
        "promised_msgs": gate.promised_msgs,
        "promised_bytes": gate.promised_bytes,
        "stopped_count": gate.closed_count,
    }


def _opened_fields(gate: Gate, now_ns: int) -> dict[str, object]:
    return {
        "stopped_ms": (now_ns - gate.closed_since_ns) / MILLISECOND_NS,
        "stopped_total_ms": gate.closed_total_ns / MILLISECOND_NS,
    }
