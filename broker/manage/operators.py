"""The operators' verbs about clients: holds on producers, and ends of connections and links."""

from __future__ import annotations

import json

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import NotFoundError
from broker.manage.holds import EVERYTHING, ProducerHolds, matches, parsed
from broker.manage.names import is_reserved
from broker.manage.views import Links

# The store's note of the operators' holds.
HOLDS = "holds"


class Operators:
    """The holds of the operators, and their way to clients' connections and links."""

    def __init__(self, engine: Engine, holds: ProducerHolds, links: Links) -> None:
        self._engine = engine
        self._holds = holds
        self._links = links

    def hold(self, target: str | None, held: bool) -> list[str]:
        """Stop (or start again) the producers of a node, of a pattern, or of all: the nodes concerned.

        It holds for nodes to come as well, until it is lifted.
        """
        wanted = target or EVERYTHING
        pattern = parsed(wanted)
        self._holds.put(wanted, held)
        self.keep_holds()
        nodes = [node for node in self._engine.topology.nodes.values() if matches(wanted, pattern, node.name)]
        for node in nodes:
            self.hold_node(node)
        names = [node.name for node in nodes if not is_reserved(node.name)]
        told = {"action": "stop" if held else "start", "target": wanted, "nodes": len(names)}
        self._engine.changes.emit("operator", None, told)
        return names

    def hold_node(self, node: Node) -> None:
        """Stop the producers of a node, or start them, as the holds say; one that is frozen stays stopped."""
        if node in self._engine.delivery.frozen:
            return
        held = bool(self._holds.holding(node.name))
        if node.gate.held != held:
            self._engine.actions.hold(node, held)

    def holds(self) -> list[str]:
        """Return the names and patterns whose producers an operator stops."""
        return list(self._holds.patterns)

    def restore_holds(self, rules: bytes) -> None:
        """Put the holds back as ``keep_holds`` noted them before the restart."""
        # All of them are read before any holds.
        for pattern, held in [(str(each), bool(held)) for each, held in json.loads(rules or b"[]")]:
            self._holds.put(pattern, held)

    def keep_holds(self) -> None:
        """Note the holds there are in the store."""
        self._engine.durability.note(
            HOLDS, json.dumps(self._holds.rules).encode() if self._holds.rules else b""
        )

    def close_connection(self, connection_id: str) -> None:
        """Close a client's connection, which is told that an operator did."""
        if not self._links.close(connection_id):
            raise NotFoundError(f"no connection '{connection_id}'")

    def detach_link(self, link_id: str) -> None:
        """Detach a client's link; its connection and its other links go on."""
        if not self._links.detach(link_id):
            raise NotFoundError(f"no link '{link_id}'")
