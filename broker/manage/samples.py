"""Nodes as they were in the last minutes, a row a second: for the page about one of them.

Kept for nodes that messages come to or go from, and for those somebody asked about; a row is added only where
something changed, and what is asked for is filled up from those. A ring takes 33 bytes a row: with 300 rows
and 1,000 nodes all of them stay below 12 MB. Whoever changed, or was asked about, longest ago goes first.

The events' file has the whole history; this is the part that is at hand.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from broker.engine.node import Node
from broker.manage.stats import BY_PATH
from broker.units import SECOND_NS

ROWS = 300
Flow = tuple[int, float, float]
MOST_NODES = 1000


@dataclass(frozen=True, slots=True)
class Sample:
    """A node at a time, in monotonic nanoseconds; rates are messages a second."""

    at_ns: int
    depth_msgs: int
    depth_bytes: int
    stopped: bool
    rate_in: float
    rate_out: float


_SAMPLED = [BY_PATH[name] for name in ("depth_msgs", "depth_bytes", "flow_stopped", "rate_in", "rate_out")]


class Ring:
    """The last ``ROWS`` changes of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.count = 0
        self._at_ns = array("q", bytes(8 * ROWS))
        self._depths = array("q", bytes(8 * ROWS))
        self._sizes = array("q", bytes(8 * ROWS))
        self._stopped = bytearray(ROWS)
        self._rates_in = array("f", bytes(4 * ROWS))
        self._rates_out = array("f", bytes(4 * ROWS))
        self._last: tuple[int, int, bool, float, float] | None = None

    def look(self, now_ns: int) -> bool:
        """Add a row if the node isn't as it was; of a topic, its subscriptions count. The oldest makes room.

        A thousand of these in a second are some two milliseconds of the reactor's.
        """
        node = self.node
        gate = node.gate
        if node.subscriptions:
            seen = _of_many(node)
        else:
            seen = (gate.depth_msgs, gate.depth_bytes, gate.closed, node.rate_in, node.rate_out)
        if seen == self._last:
            return False
        self._last = seen
        at = self.count % ROWS
        self._at_ns[at] = now_ns
        self._depths[at], self._sizes[at], self._stopped[at], self._rates_in[at], self._rates_out[at] = seen
        self.count += 1
        return True

    def __iter__(self) -> Iterator[Sample]:
        """The oldest first."""
        for number in range(max(self.count - ROWS, 0), self.count):
            at = number % ROWS
            yield Sample(
                self._at_ns[at],
                self._depths[at],
                self._sizes[at],
                bool(self._stopped[at]),
                self._rates_in[at],
                self._rates_out[at],
            )


class Samples:
    """The rings of all nodes that have one, by name."""

    def __init__(self) -> None:
        self._rings: OrderedDict[str, Ring] = OrderedDict()
        # Of the whole broker: when, and how many messages a second came in and went out.
        self._flow: deque[Flow] = deque(maxlen=ROWS)

    def look(self, nodes: Iterable[Node], now_ns: int) -> None:
        """Once a second: a row for each node that changed."""
        rings = self._rings
        came = went = 0.0
        for node in nodes:
            went += node.rate_out
            if not node.topics:  # else it came in at a topic
                came += node.rate_in
            if (node.rate_in or node.rate_out) and node.name not in rings:
                self._begin(node)
        self._flow.append((now_ns, came, went))
        changed = []
        for name, ring in rings.items():
            if ring.look(now_ns) or ring.node.deleted:
                changed.append(name)
        for name in changed:
            if rings[name].node.deleted:
                del rings[name]
            else:
                rings.move_to_end(name)

    def of(self, node: Node, now_ns: int, seconds: int = ROWS) -> list[Sample]:
        """A row a second of the last so many, the oldest first, as far back as is known."""
        ring = self._rings.get(node.name)
        if ring is None or ring.node is not node:
            ring = self._begin(node)
            ring.look(now_ns)
        self._rings.move_to_end(node.name)
        return _filled(list(ring), now_ns, min(seconds, ROWS))

    def flow(self, seconds: int = ROWS) -> list[Flow]:
        """A row a second of the whole broker, the oldest first: when, and messages in and out a second."""
        return list(self._flow)[-seconds:]

    def __len__(self) -> int:
        return len(self._rings)

    def _begin(self, node: Node) -> Ring:
        self._rings.pop(node.name, None)
        while len(self._rings) >= MOST_NODES:
            self._rings.popitem(last=False)
        ring = self._rings[node.name] = Ring(node)
        return ring


def _of_many(node: Node) -> tuple[int, int, bool, float, float]:
    depth_msgs, depth_bytes, stopped, rate_in, rate_out = (stat.whole(node, 0, False) for stat in _SAMPLED)
    return depth_msgs, depth_bytes, stopped, rate_in, rate_out


def _filled(known: list[Sample], now_ns: int, seconds: int) -> list[Sample]:
    """A row for every second up to now: what didn't change is as it was before."""
    rows: list[Sample] = []
    at = 0
    for back in range(seconds - 1, -1, -1):
        moment = now_ns - back * SECOND_NS
        while at + 1 < len(known) and known[at + 1].at_ns <= moment:
            at += 1
        if known[at].at_ns <= moment:
            rows.append(replace(known[at], at_ns=moment))
    return rows
