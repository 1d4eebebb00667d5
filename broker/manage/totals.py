"""Counters of the whole broker, which never fall though nodes come and go."""

from __future__ import annotations

from collections.abc import Iterable
from operator import add, attrgetter, sub

from broker.manage.views import Counters
from broker.node import Node

_NAMES = Counters.__slots__
_of = attrgetter(*_NAMES)
# A copy in a subscription was received once, at its topic.
_AT_THE_TOPIC = tuple(name in ("received", "received_bytes") for name in _NAMES)

Counted = tuple[int, ...]


class Totals:
    """What nodes that are gone had counted, on top of what the present ones count.

    A node nobody has looked at yet takes along what it counted when it vanishes, unless ``retire`` was
    told of it.
    """

    def __init__(self) -> None:
        self._gone: list[int] = [0] * len(_NAMES)
        self._seen: dict[int, Node] = {}
        self._looks: list[Look] = []

    def retire(self, node: Node) -> None:
        """The node was deleted: keep what it counted."""
        self._seen.pop(id(node), None)
        self._gone = list(map(add, self._gone, _counted(node)))
        for look in self._looks:
            look.drop(node)

    def begin(self) -> Look:
        """A look that is told of one node after the other; ``end`` it, or ``abandon`` it."""
        look = Look()
        self._looks.append(look)
        return look

    def abandon(self, look: Look) -> None:
        """It won't be ended."""
        if look in self._looks:
            self._looks.remove(look)

    def end(self, look: Look) -> Counters:
        """All that was counted so far, given that the look was told of every node there is."""
        self.abandon(look)
        self._seen |= look.nodes
        for node in [node for node in self._seen.values() if node.deleted]:
            look.drop(node)
            del self._seen[id(node)]
            self._gone = list(map(add, self._gone, _counted(node)))
        return Counters(*map(add, self._gone, look.sums))

    def look(self, nodes: Iterable[Node]) -> Counters:
        """The same at once."""
        look = self.begin()
        for node in nodes:
            look.add(node)
        return self.end(look)


class Look:
    """What the nodes it was told of count together."""

    def __init__(self) -> None:
        self.sums: list[int] = [0] * len(_NAMES)
        self.nodes: dict[int, Node] = {}
        self._counted: dict[int, Counted] = {}

    def add(self, node: Node) -> None:
        """One node more; each is told once."""
        counted = _counted(node)
        self.nodes[id(node)] = node
        self._counted[id(node)] = counted
        self.sums = list(map(add, self.sums, counted))

    def drop(self, node: Node) -> None:
        """It has gone, and is counted with those that have."""
        counted = self._counted.pop(id(node), None)
        if counted is not None:
            del self.nodes[id(node)]
            self.sums = list(map(sub, self.sums, counted))


def _counted(node: Node) -> Counted:
    counted: Counted = _of(node)
    if not node.topics:
        return counted
    return tuple(0 if above else value for value, above in zip(counted, _AT_THE_TOPIC, strict=True))
