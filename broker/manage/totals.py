"""Counters of the whole broker, which never fall though nodes come and go."""

from __future__ import annotations

from collections.abc import Iterable
from operator import add, attrgetter, sub

from broker.engine.node import Node
from broker.manage.views import Counters

_NAMES = Counters.__slots__
of_node = attrgetter(*_NAMES)
# A copy in a subscription was received once, at its topic.
_AT_THE_TOPIC = tuple(name in ("received", "received_bytes") for name in _NAMES)

Counted = tuple[int, ...]
NOTHING: Counted = (0,) * len(_NAMES)


class Totals:
    """The counts of nodes that are gone, on top of those of the present ones.

    A node nobody has looked at yet takes along what it counted when it vanishes, unless ``retire`` was
    told of it.
    """

    def __init__(self) -> None:
        self._gone: Counted = NOTHING
        self._seen: set[Node] = set()
        self._looks: list[TotalsReading] = []

    def retire(self, node: Node) -> None:
        """The node was deleted: keep what it counted."""
        self._seen.discard(node)
        self._gone = _plus(self._gone, counted(node))
        for look in self._looks:
            look.drop(node)

    def begin(self) -> TotalsReading:
        """A look that is told of one node after the other; ``end`` it, or ``abandon`` it."""
        look = TotalsReading()
        self._looks.append(look)
        return look

    def abandon(self, look: TotalsReading) -> None:
        """It won't be ended."""
        if look in self._looks:
            self._looks.remove(look)

    def end(self, look: TotalsReading) -> Counters:
        """All that was counted so far, given that the look was told of every node there is."""
        self.abandon(look)
        self._seen.update(look.found)
        for node in [node for node in self._seen if node.deleted]:
            look.drop(node)
            self._seen.discard(node)
            self._gone = _plus(self._gone, counted(node))
        return Counters(*_plus(self._gone, look.sums))

    def look(self, nodes: Iterable[Node]) -> Counters:
        """The same at once."""
        look = self.begin()
        for node in nodes:
            look.add(node, counted(node))
        return self.end(look)


class TotalsReading:
    """The sums of the nodes it was told of; ``found`` has each of them."""

    def __init__(self) -> None:
        self.sums: Counted = NOTHING
        self.found: dict[Node, Counted] = {}

    def add(self, node: Node, counts: Counted) -> None:
        """One node more; each is told once."""
        self.found[node] = counts
        if counts != NOTHING:
            self.sums = _plus(self.sums, counts)

    def drop(self, node: Node) -> None:
        """It has gone, and is counted with those that have."""
        counts = self.found.pop(node, None)
        if counts is not None:
            self.sums = tuple(map(sub, self.sums, counts))


def counted(node: Node) -> Counted:
    """Return a node's own counts: a copy in a subscription was received once, at its topic."""
    counts: Counted = of_node(node)
    if not node.topics:
        return counts
    return tuple(0 if above else value for value, above in zip(counts, _AT_THE_TOPIC, strict=True))


def _plus(one: Counted, other: Counted) -> Counted:
    return tuple(map(add, one, other))
