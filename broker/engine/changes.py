"""Changes of gates and links: what follows for credit, and who is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.engine.node import Node
from broker.engine.turn import Turn
from broker.flow.gate import Gate


class Changes:
    """Tells credit and observers of changes.

    ``on_gate`` is told of every gate that opens or closes: ``on_gate(node, now_ns)``; ``watch`` that there
    are nodes whose gate or links changed (``take_nodes``). ``emit`` is told of whatever else is rare and
    worth knowing, ``emit(kind, node, fields)``, never of a single message; it returns at once. Kinds and
    fields are those of docs/observability.md.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._nodes: list[Node] = []
        self.on_gate: Callable[[Node, int], None] | None = None
        self.watch: Callable[[], None] | None = None
        self.emit: Callable[[str, Node | None, Mapping[str, object]], None] = _ignore

    def gate_changed(self, node: Node) -> None:
        """Take back what a closed gate has promised; tell observers."""
        gate = node.gate
        for owner in node.owners():
            if gate.closed and gate.promised_msgs > 0:
                owner.allocator.overpromised = True
            self._turn.mark_dirty(owner)
        if self.on_gate is not None:
            self.on_gate(node, self._turn.now_ns)
        self.links_changed(node)

    def hold(self, node: Node, held: bool) -> None:
        """Close a node's gate by hand, or let it be as its depth says."""
        if node.gate.hold(held, self._turn.now_ns):
            self.gate_changed(node)
        node.allocator.overpromised = True
        self._turn.mark_dirty(node)

    def links_changed(self, node: Node) -> None:
        """Note a node once: a gate may open and close with every message."""
        if node.changed_nodes or self.watch is None:
            return
        node.changed_nodes = True
        self._nodes.append(node)
        if len(self._nodes) == 1:
            self.watch()

    def take_nodes(self) -> list[Node]:
        """Return the nodes whose gate or links changed since the last time."""
        found = self._nodes
        self._nodes = []
        for node in found:
            node.changed_nodes = False
        return found

    def budget_changed(self, gate: Gate) -> None:
        """Tell observers that a budget over all nodes opened or closed."""
        self.emit("stopped" if gate.closed else "opened", None, {"budget": gate.name})

    def overpromise(self, node: Node) -> None:
        """Have the next deal take back credit that is no longer covered by room at the node."""
        for owner in node.owners():
            owner.allocator.overpromised = True
            self._turn.mark_dirty(owner)


def _ignore(kind: str, node: Node | None, fields: Mapping[str, object]) -> None:
    """Drop an event that nobody listens to."""
