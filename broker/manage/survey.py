"""Every node's numbers and the broker's sums over them, read a few nodes at a time.

One look at ten thousand nodes would hold up every message for a tenth of a second; so whoever watches a
whole broker reads it in parts, between which the loop goes on. A survey is therefore no moment's picture:
its nodes were read within the same tenths of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from broker.engine.node import Node
from broker.manage.bridges import BridgeView
from broker.manage.cluster import ClusterStatus
from broker.manage.forwards import ChannelView, RouteView
from broker.manage.stats import STATS
from broker.manage.totals import Counted, TotalsReading, counted, of_node
from broker.manage.views import BrokerView, ConsumerView, Counters, ProducerView
from broker.queues.stream import StreamQueue

# The figures of a row, by the way they are read of a lone node; the totals have read the counters already.
_SHOWN = [stat for stat in STATS if stat.metric and not stat.path.startswith("counters.")]
_PATHS = [stat for stat in _SHOWN if isinstance(stat.alone, str)]
_COUNTED = [stat for stat in _SHOWN if callable(stat.alone)]
_ANYWHERE = [stat for stat in _SHOWN if stat.alone is None]
_ZERO = [stat for stat in _SHOWN if stat.alone == 0]
_read_paths = attrgetter(*(stat.alone for stat in _PATHS if isinstance(stat.alone, str)))
_COUNTS = tuple(stat.alone for stat in _COUNTED if callable(stat.alone))
_READERS = tuple(stat.whole for stat in _ANYWHERE)
_ZEROS = (0,) * len(_ZERO)
_IN_ORDER = (*_PATHS, *_COUNTED, *_ANYWHERE, *_ZERO)
# Where a queue's view has the values of a row, in their order.
COLUMNS = (*(stat.path for stat in _IN_ORDER), *(f"counters.{name}" for name in Counters.__slots__))
Row = tuple[float, ...]

# Named readers of streams that are told of one by one: each is a series wherever they are watched.
MOST_READERS = 1000
# Nodes that are read between two looks at the clock.
AT_ONCE = 16


class Named(NamedTuple):
    """The node of a row; ``address`` is a subscription's topic."""

    name: str
    kind: str
    address: str
    durable: bool


class ReaderLag(NamedTuple):
    """How many messages of a stream came since a named reader's place."""

    stream: str
    reader: str
    lag_msgs: int


@dataclass(frozen=True, slots=True)
class SurveyScope:
    """The things that a survey tells of beside queues, topics and the broker itself."""

    subscriptions: bool = False
    links: bool = False


@dataclass(slots=True)
class Sums:
    """The sums over all nodes; a topic's messages lie at its subscriptions, and are counted there."""

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
        allocator = node.allocator
        if allocator.accounts:
            self.producers += len(allocator.accounts)
            self.blocked_producers += allocator.blocked()
            self.promised_msgs += allocator.promised_msgs
        if allocator.parked_msgs:
            self.parked_msgs += allocator.parked_msgs
            self.parked_bytes += allocator.parked_bytes
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
    """The result of a survey; ``rows`` are of ``nodes``, value by value as in ``COLUMNS``.

    Nodes of the broker's own are left out. Subscriptions and links are there if they were asked for.
    Safe to read on any thread.
    """

    broker: BrokerView
    nodes: list[Named]
    rows: list[Row]
    subscriptions: list[Named]
    subscription_rows: list[Row]
    # The first MOST_READERS of the streams' named readers, and how many there are beyond.
    readers: tuple[ReaderLag, ...] = ()
    readers_left_out: int = 0
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
    # The replicated cell, where the broker is a member of one.
    cluster: ClusterStatus | None = None


def row_of(node: Node, counts: Counted, held: bool, now_ns: int) -> Row:
    """Return a node's numbers; ``counts`` are its counters'. A node that stands alone is less work."""
    if node.subscriptions or node.topics or node.bridge_sources or node.spool is not None or node.is_topic:
        return (*[stat.whole(node, now_ns, held) for stat in _IN_ORDER], *counts)
    return (
        *_read_paths(node),
        *[count(node, now_ns) for count in _COUNTS],
        *[read(node, now_ns, held) for read in _READERS],
        *_ZEROS,
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
        self.readers: list[ReaderLag] = []
        self.readers_left_out = 0
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
        if name.startswith("$") or (node.is_subscription and not subscriptions):
            return
        row = row_of(node, counts, self._held and bool(self._held_by(node)), now_ns)
        named = Named(name, node.kind, node.address, settings.durable)
        if node.is_subscription:
            self.subscriptions.append(named)
            self.subscription_rows.append(row)
        else:
            self.nodes.append(named)
            self.rows.append(row)
            if node.stream is not None:
                self._read_readers(name, node.stream)

    def _read_readers(self, name: str, stream: StreamQueue) -> None:
        """Add the named readers of a stream, as far as there is room for them."""
        named = stream.named.by_name
        room = MOST_READERS - len(self.readers)
        for each in islice(named.values(), room):
            lag = max(stream.next_offset - each.stored, 0)
            self.readers.append(ReaderLag(name, each.name, lag))
        self.readers_left_out += max(len(named) - room, 0)
