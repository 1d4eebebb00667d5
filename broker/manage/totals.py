"""Counters of the whole broker, which never fall though nodes come and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from broker.manage.views import Counters
from broker.node import Node


class Totals:
    """What nodes that are gone had counted, on top of what the present ones count.

    A node that vanishes between two looks takes along what it counted since the last one, unless
    ``retire`` was told of it.
    """

    def __init__(self) -> None:
        self._gone = Counters()
        self._seen: dict[int, tuple[Node, Counters]] = {}

    def retire(self, node: Node) -> None:
        """The node was deleted: keep what it counted."""
        self._seen.pop(id(node), None)
        self._gone = self._gone.plus(_counted(node))

    def look(self, nodes: Iterable[Node]) -> Counters:
        """All that was counted so far, given every node there is."""
        present = {id(node): (node, _counted(node)) for node in nodes}
        for key, (_, counters) in self._seen.items():
            if key not in present:
                self._gone = self._gone.plus(counters)
        self._seen = present
        total = self._gone
        for _, counters in present.values():
            total = total.plus(counters)
        return total


def _counted(node: Node) -> Counters:
    """A copy in a subscription was received once, at its topic."""
    counters = Counters.of(node)
    if not node.topics:
        return counters
    return replace(counters, received=0, received_bytes=0)
