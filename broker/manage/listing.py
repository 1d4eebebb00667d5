"""Lists of entities for whoever asks again and again: by name first, then the rows of one page.

Nobody sorts or searches on the reactor's thread. It is asked for names, for one value of some of them, for
the attributes of a page: each time a piece of work that is short however many entities there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker.engine import Engine
from broker.errors import OperatorError
from broker.manage.attributes import PREFIX, names
from broker.manage.entities import NODE_KINDS, Entities
from broker.node import Node

# Nodes of which one call gives whole rows, and of which it gives one value that is read at once.
ROWS_AT_ONCE, VALUES_AT_ONCE = 100, 4000


class Listing:
    """Reads the engine and the links; it changes nothing. Every call belongs in a turn of its own."""

    def __init__(self, engine: Engine, entities: Entities) -> None:
        self._engine = engine
        self._entities = entities

    def nodes(self, kinds: Sequence[str]) -> list[str]:
        """The names of all nodes of these kinds, those of the broker's own left out."""
        wanted = set(kinds)
        return [
            node.name
            for node in self._engine.every_node()
            if node.kind in wanted and (node.is_subscription or not node.name.startswith("$"))
        ]

    def keys(self, found: Sequence[str], attribute: str) -> list[object]:
        """One attribute of each of these nodes, None for those that are gone."""
        read = QUICK.get(attribute) or self._reader(attribute)
        known = [self._node(name) for name in found]
        return [None if node is None else read(node) for node in known]

    def rows(self, found: Sequence[str], columns: Sequence[str]) -> list[dict[str, object]]:
        """Attributes of these nodes, all without ``columns``; those that are gone are left out."""
        known = [node for node in map(self._node, found) if node is not None]
        return [self._entities.row(PREFIX + node.kind, node, columns) for node in known]

    def others(self, type_: str, node: str = "") -> list[object]:
        """Views of all entities of a type that are no nodes, or of one node's links: there are fewer of them.

        Any thread may read them, with ``row``.
        """
        return self._entities.every(type_, node)

    def row(self, type_: str, view: object) -> dict[str, object]:
        """All attributes of one of ``others``."""
        return self._entities.row(type_, view)

    def _node(self, name: str) -> Node | None:
        return self._engine.nodes.get(name) or self._engine.subscriptions.get(name)

    def _reader(self, attribute: str) -> Callable[[Node], object]:
        return lambda node: self._entities.row(PREFIX + node.kind, node, (attribute,))[attribute]


def at_once(attribute: str) -> int:
    """Of how many nodes ``keys`` may be asked this attribute in one turn."""
    return VALUES_AT_ONCE if attribute in QUICK else ROWS_AT_ONCE


def check_columns(types: Sequence[str], wanted: Sequence[str]) -> None:
    """OperatorError if one of these is no attribute of any of the types."""
    known = {name for type_ in types for name in names(type_)}
    for name in wanted:
        if name not in known:
            raise OperatorError(f"unknown attribute {name!r}")


def _parts(node: Node) -> tuple[Node, ...]:
    return (node, *node.subscriptions)


def _is_stopped(node: Node) -> bool:
    return any(part.gate.closed for part in _parts(node))


# What lists are sorted by as a rule, without the whole view of each node.
QUICK: Mapping[str, Callable[[Node], object]] = {
    "name": lambda node: node.name,
    "depth_msgs": lambda node: sum(part.gate.depth_msgs for part in _parts(node)),
    "depth_bytes": lambda node: sum(part.gate.depth_bytes for part in _parts(node)),
    "flowStopped": _is_stopped,
    "flow_stopped": _is_stopped,
    "flowStoppedCount": lambda node: sum(part.gate.closed_count for part in _parts(node)),
    "promised_msgs": lambda node: node.gate.promised_msgs,
    "rate_in": lambda node: node.rate_in,
    "rate_out": lambda node: node.rate_out + sum(part.rate_out for part in node.subscriptions),
    "received": lambda node: node.received,
    "delivered": lambda node: node.delivered,
    "consumers": lambda node: sum(len(part.consumers) for part in _parts(node)),
    "producers": lambda node: sum(len(owner.ledger.accounts) for owner in node.owners()),
}

NODE_TYPES = tuple(PREFIX + kind for kind in NODE_KINDS)
