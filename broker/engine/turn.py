"""One turn of the engine: its time, and the nodes that have something to do at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.engine.node import Node


class Turn:
    """The time of everything that is reported in a turn, with the nodes that have work left.

    ``now_ns`` is monotonic; ``epoch_ns`` is the wall clock at monotonic zero, as it was when the broker
    started: a clock that is set later doesn't make messages expire. ``clock_set_ns`` is by how much it was
    set since, which times of streams follow. ``dirty`` nodes have something to do at the end of this turn,
    ``unfinished`` ones in the next; each stands there once.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.epoch_ns = 0
        self.clock_set_ns = 0
        self.dirty: list[Node] = []
        self.unfinished: list[Node] = []

    def wall_ms(self) -> int:
        """Return the wall clock's time of this turn, in milliseconds."""
        return (self.epoch_ns + self.now_ns) // 1_000_000

    def stamp_ms(self) -> int:
        """Return the time of this turn by the wall clock as it is set now, in milliseconds."""
        return (self.epoch_ns + self.clock_set_ns + self.now_ns) // 1_000_000

    def mark_dirty(self, node: Node) -> None:
        """Note that the node has something to do at the end of this turn."""
        if not node.dirty:
            node.dirty = True
            self.dirty.append(node)

    def wake(self, node: Node) -> None:
        """Have those dealt credit who wait for room of a node, or of its subscriptions: some came free though
        no message left.
        """
        for each in (node, *node.subscriptions):
            for owner in each.owners():
                self.mark_dirty(owner)

    def mark_dirty_later(self, node: Node) -> None:
        """Note that the node has something to do in the next turn: this one has done its part."""
        if node not in self.unfinished:
            self.unfinished.append(node)

    def take_dirty(self) -> list[Node]:
        """Return the nodes noted so far, and begin anew; who calls it takes their ``dirty`` back."""
        nodes, self.dirty = self.dirty, []
        return nodes

    def go_on(self) -> None:
        """Have what was left for the next turn done in it."""
        for node in self.unfinished:
            self.mark_dirty(node)
        self.unfinished.clear()
