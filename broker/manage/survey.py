"""Every node's numbers and the broker's sums over them, read a few nodes at a time.

One look at ten thousand nodes would hold up every message for a tenth of a second; so whoever watches a
whole broker reads it in parts, between which the loop goes on. A survey is therefore no moment's picture:
its nodes were read within the same tenths of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from broker.engine.engine import SECOND_NS
from broker.engine.node import Node
from broker.manage.bridges import BridgeView
from broker.manage.forwards import ChannelView, RouteView
from broker.manage.totals import Counted, TotalsReading, counted, of_node
from broker.manage.views import BrokerView, ConsumerView, Counters, ProducerView, queue_view

# What of a queue's view is a number, in the order of a row; a list counts, a text is whether there is one.
COLUMNS = (
    *("depth_msgs", "depth_bytes", "ready_msgs", "unsettled_msgs", "peak_msgs", "peak_bytes"),
    *("flow_stopped", "held", "enforced", "flow_stopped_count", "flow_stopped_seconds"),
    *("settings.flow_stop_count", "settings.flow_resume_count"),
    *("settings.flow_stop_size", "settings.flow_resume_size", "settings.max_count", "settings.max_size"),
    *("promised_msgs", "promised_bytes", "blocked_producers", "producers", "consumers", "subscriptions"),
    *("slow_consumers", "parked_msgs", "parked_bytes", "overrun_msgs", "late_msgs", "revocations"),
    *("paged_msgs", "paged_bytes"),
    *(f"counters.{name}" for name in Counters.__slots__),
)
Row = tuple[float, ...]

# Nodes that are read between two looks at the clock.
AT_ONCE = 16


class Named(NamedTuple):
    """Whose row it is; ``address`` is a subscription's topic."""

    name: str
    kind: str
    address: str
    durable: bool


@dataclass(frozen=True, slots=True)
class SurveyScope:
    """What else than queues, topics and the broker itself is to be told of."""

    subscriptions: bool = False
    links: bool = False


_of_view = attrgetter(*COLUMNS)
_of_settings = attrgetter(
    *(path.removeprefix("settings.") for path in COLUMNS if path.startswith("settings."))
)


@dataclass(slots=True)
class Sums:
    """What the nodes have in all; what lies at a topic lies at its subscriptions, and is counted there."""

    queues: int = 0
    topics: int = 0
    subscriptions: int = 0
    stopped_nodes: int = 0
    producers: int = 0
    consumers: int = 0
    slow_consumers: int = 0
    blocked_producers: int = 0
    depth_msgs: int = 0
    depth_bytes: int = 0
    promised_msgs: int = 0
    parked_msgs: int = 0
    parked_bytes: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0

    def add(self, node: Node) -> None:
        """One node more."""
        gate = node.gate
        self.stopped_nodes += gate.closed
        self.rate_out += node.rate_out
        if not node.topics:  # else it came in at a topic
            self.rate_in += node.rate_in
        if node.consumers:
            self.consumers += len(node.consumers)
            self.slow_consumers += sum(each.slow for each in node.consumers)
        if gate.depth_msgs and not node.is_topic:
            self.depth_msgs += gate.depth_msgs
            self.depth_bytes += gate.depth_bytes
        if node.is_subscription:
            self.subscriptions += 1
            return
        ledger = node.ledger
        if ledger.accounts:
            self.producers += len(ledger.accounts)
            self.blocked_producers += ledger.blocked()
            self.promised_msgs += ledger.promised_msgs
        if ledger.parked_msgs:
            self.parked_msgs += ledger.parked_msgs
            self.parked_bytes += ledger.parked_bytes
        if not node.name.startswith("$"):
            self.topics += node.is_topic
            self.queues += not node.is_topic


@dataclass(frozen=True, slots=True)
class TlsCounted:
    """``expires``: when the first of the broker's certificates does, in seconds since 1970."""

    completed: Mapping[str, int]
    failed: Mapping[str, int]
    expires: float


@dataclass(frozen=True, slots=True)
class SurveyResult:
    """What was found; ``rows`` are of ``nodes``, value by value as in ``COLUMNS``.

    Nodes of the broker's own are left out. Subscriptions and links are there if they were asked for.
    Safe to read on any thread.
    """

    broker: BrokerView
    nodes: list[Named]
    rows: list[Row]
    subscriptions: list[Named]
    subscription_rows: list[Row]
    bridges: tuple[BridgeView, ...] = ()
    routes: tuple[RouteView, ...] = ()
    channels: tuple[ChannelView, ...] = ()
    producers: tuple[ProducerView, ...] = ()
    consumers: tuple[ConsumerView, ...] = ()
    # By mechanism and outcome; whoever lets people in fills it in.
    authentications: Mapping[tuple[str, str], int] = field(default_factory=dict)
    # Handshakes of TLS by version, and those that failed by reason; None where nothing listens with it.
    tls: TlsCounted | None = None
    # Lines of the log by level, and those that were left out; whoever writes them fills it in.
    log_lines: Mapping[str, int] = field(default_factory=dict)
    log_left_out: int = 0
    # How often each limit was reached, and the loop's longest turn since the last survey of this kind.
    refusals: Mapping[str, int] = field(default_factory=dict)
    longest_turn_s: float = 0.0


def row_of(node: Node, counts: Counted, held: bool, now_ns: int) -> Row:
    """A node's numbers: those of its view, without the view where the node stands alone, as most do."""
    if node.subscriptions or node.topics or node.bridge_sources or node.spool is not None or node.is_topic:
        return tuple(_of_view(queue_view(node, "held" if held else "", now_ns)))
    gate, ledger, queue = node.gate, node.ledger, node.queue
    closed_ns = gate.closed_total_ns
    if gate.closed:
        closed_ns += now_ns - gate.closed_since_ns
    accounts = ledger.accounts
    return (
        gate.depth_msgs,
        gate.depth_bytes,
        queue.ready + queue.pending + queue.behind,
        queue.acquired,
        gate.peak_msgs,
        gate.peak_bytes,
        gate.closed,
        held,
        gate.enforced or node.never_blocks_publishers,
        gate.closed_count,
        closed_ns / SECOND_NS,
        *_of_settings(node.settings),
        gate.promised_msgs,
        gate.promised_bytes,
        ledger.blocked() if accounts else 0,
        len(accounts),
        len(node.consumers),
        0,
        sum(each.slow for each in node.consumers) if node.consumers else 0,
        ledger.parked_msgs,
        ledger.parked_bytes,
        node.overrun,
        sum(account.late_count for account in accounts) if accounts else 0,
        ledger.revoked_count,
        0,
        0,
        *counts,
    )


class Survey:
    """One reading of all nodes there are when it begins."""

    def __init__(
        self, nodes: list[Node], look: TotalsReading, holds: bool, held_by: Callable[[Node], str]
    ) -> None:
        self.sums = Sums()
        self.nodes: list[Named] = []
        self.rows: list[Row] = []
        self.subscriptions: list[Named] = []
        self.subscription_rows: list[Row] = []
        self._nodes = nodes
        self.look = look
        self._held = holds
        self._held_by = held_by

    def add_up(self) -> None:
        """The sums alone, at once."""
        for _ in self.sums_in_parts():
            pass

    def sums_in_parts(self) -> Iterator[None]:
        """The sums alone, a few nodes before each ``next``."""
        for first in range(0, len(self._nodes), AT_ONCE):
            for node in self._nodes[first : first + AT_ONCE]:
                if not node.deleted:
                    self.sums.add(node)
                    self.look.add(node, counted(node))
            yield

    def steps(self, now_ns: Callable[[], int], subscriptions: bool) -> Iterator[None]:
        """A few nodes before each ``next``; one that has gone meanwhile is left out."""
        for first in range(0, len(self._nodes), AT_ONCE):
            now = now_ns()
            for node in self._nodes[first : first + AT_ONCE]:
                if not node.deleted:
                    self._read(node, now, subscriptions)
            yield

    def _read(self, node: Node, now_ns: int, subscriptions: bool) -> None:
        self.sums.add(node)
        counts = of_node(node)
        self.look.add(node, counted(node) if node.topics else counts)
        settings, name = node.settings, node.name
        if settings is None or name.startswith("$") or (node.is_subscription and not subscriptions):
            return
        row = row_of(node, counts, self._held and bool(self._held_by(node)), now_ns)
        named = Named(name, node.kind, node.address, settings.durable)
        if node.is_subscription:
            self.subscriptions.append(named)
            self.subscription_rows.append(row)
        else:
            self.nodes.append(named)
            self.rows.append(row)
