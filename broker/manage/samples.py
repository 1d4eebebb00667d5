"""What nodes looked like in the last minutes, a row a second: for whoever opens a page about one of them.

Kept for nodes that messages come to or go from, and for those somebody asked about; a row is added only where
something changed, and what is asked for is filled up from those. A ring takes 33 bytes a row: with 300 rows
and 1,000 nodes all of them stay below 12 MB. Whoever changed, or was asked about, longest ago goes first.

The events' file has the whole history; this is the part that is at hand.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from broker.engine import SECOND_NS
from broker.node import Node

ROWS = 300
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


class Ring:
    """The last ``ROWS`` changes of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._next = 0
        self._count = 0
        self._at_ns = array("q")
        self._depths = array("q")
        self._sizes = array("q")
        self._stopped = bytearray()
        self._rates_in = array("f")
        self._rates_out = array("f")

    def add(self, sample: Sample) -> None:
        """The newest; the oldest makes room."""
        columns = (self._at_ns, self._depths, self._sizes, self._stopped, self._rates_in, self._rates_out)
        values = (
            *(sample.at_ns, sample.depth_msgs, sample.depth_bytes),
            *(sample.stopped, sample.rate_in, sample.rate_out),
        )
        for column, value in zip(columns, values, strict=True):
            if self._count < ROWS:
                column.append(value)  # type: ignore[attr-defined]
            else:
                column[self._next] = value  # type: ignore[index]
        self._count = min(self._count + 1, ROWS)
        self._next = (self._next + 1) % ROWS

    def last(self) -> Sample | None:
        """The newest there is."""
        return self._sample((self._next - 1) % ROWS) if self._count else None

    def __iter__(self) -> Iterator[Sample]:
        """The oldest first."""
        begin = self._next if self._count == ROWS else 0
        for index in range(self._count):
            yield self._sample((begin + index) % ROWS)

    def _sample(self, at: int) -> Sample:
        return Sample(
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

    def look(self, nodes: Iterable[Node], now_ns: int) -> None:
        """Once a second: a row for each node that changed."""
        rings = self._rings
        for node in nodes:
            if (node.rate_in or node.rate_out) and node.name not in rings:
                self._begin(node)
        for name, ring in list(rings.items()):
            if ring.node.deleted:
                del rings[name]
            elif self._add(ring, now_ns):
                rings.move_to_end(name)

    def of(self, node: Node, now_ns: int, seconds: int = ROWS) -> list[Sample]:
        """A row a second of the last so many, the oldest first, as far back as is known."""
        ring = self._rings.get(node.name)
        if ring is None or ring.node is not node:
            ring = self._begin(node)
            self._add(ring, now_ns)
        self._rings.move_to_end(node.name)
        return _filled(ring, now_ns, min(seconds, ROWS))

    def __len__(self) -> int:
        return len(self._rings)

    def _begin(self, node: Node) -> Ring:
        while len(self._rings) >= MOST_NODES:
            self._rings.popitem(last=False)
        ring = self._rings[node.name] = Ring(node)
        return ring

    def _add(self, ring: Ring, now_ns: int) -> bool:
        seen, last = sample_of(ring.node, now_ns), ring.last()
        if last is not None and _same(seen, last):
            return False
        ring.add(seen)
        return True


def sample_of(node: Node, now_ns: int) -> Sample:
    """A node as it is; of a topic, its subscriptions in all."""
    gates = [node.gate, *(part.gate for part in node.subscriptions)]
    return Sample(
        now_ns,
        sum(gate.depth_msgs for gate in gates),
        sum(gate.depth_bytes for gate in gates),
        any(gate.closed for gate in gates),
        node.rate_in,
        node.rate_out + sum(part.rate_out for part in node.subscriptions),
    )


def _same(one: Sample, other: Sample) -> bool:
    """But for the time; rates are kept with fewer digits."""
    return (
        one.depth_msgs == other.depth_msgs
        and one.depth_bytes == other.depth_bytes
        and one.stopped == other.stopped
        and abs(one.rate_in - other.rate_in) <= 1e-3 * one.rate_in
        and abs(one.rate_out - other.rate_out) <= 1e-3 * one.rate_out
    )


def _filled(ring: Ring, now_ns: int, seconds: int) -> list[Sample]:
    """A row for every second up to now: what didn't change is as it was before."""
    known = list(ring)
    rows: list[Sample] = []
    at = 0
    for back in range(seconds - 1, -1, -1):
        moment = now_ns - back * SECOND_NS
        while at + 1 < len(known) and known[at + 1].at_ns <= moment:
            at += 1
        if known[at].at_ns <= moment:
            row = known[at]
            rows.append(
                Sample(moment, row.depth_msgs, row.depth_bytes, row.stopped, row.rate_in, row.rate_out)
            )
    return rows
