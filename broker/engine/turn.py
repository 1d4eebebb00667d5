"""One turn of the engine: its time, and the nodes that have something to do at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.engine.node import Node


class Turn:
    """``now_ns`` is the time of everything that is reported in a turn; ``dirty`` are its nodes, each once."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.dirty: list[Node] = []

    def mark_dirty(self, node: Node) -> None:
        """Note that the node has something to do at the end of this turn."""
        if not node.dirty:
            node.dirty = True
            self.dirty.append(node)

    def take_dirty(self) -> list[Node]:
        """Return the nodes noted so far, and begin anew; who calls it takes their ``dirty`` back."""
        nodes, self.dirty = self.dirty, []
        return nodes
