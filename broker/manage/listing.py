"""Lists of entities for whoever asks again and again: by name first, then the rows of one page.

Nobody sorts or searches on the reactor's thread. It is asked for names, for one value of some of them, for
the attributes of a page: each time a piece of work that is short however many entities there are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import NotFoundError, OperatorError
from broker.manage.attributes import PREFIX, names
from broker.manage.entities import NODE_KINDS, Entities, Page
from broker.manage.ordering import matcher, ordered
from broker.manage.stats import SORTABLE, stat_of
from broker.manage.views import Links

# Nodes of which one call gives whole rows, and of which it gives one value that is read at once.
ROWS_AT_ONCE, VALUES_AT_ONCE = 50, 4000

# What there is as much of as there are clients.
CLIENTS = ("connection", "session", "link")

# Which of the nodes are to be there at all; None for all of them.
Only = Callable[[Node], bool] | None


class Listing:
    """Reads the engine and the links; it changes nothing. Every call belongs in a turn of its own."""

    def __init__(self, engine: Engine, links: Links, entities: Entities) -> None:
        self._engine = engine
        self._links = links
        self._entities = entities

    def of_topic(self, topic: str, kind: str, only: Only = None) -> list[str]:
        """The names of a topic's subscriptions, by its name or by a pattern, or of the queues bound to it."""
        node = self._engine.topology.nodes.get(topic)
        if node is None or not node.is_topic:
            raise NotFoundError(f"no topic named '{topic}'")
        return [
            each.name for each in node.subscriptions if each.kind == kind and (only is None or only(each))
        ]

    def nodes(self, kinds: Sequence[str], only: Only = None) -> list[str]:
        """The names of all nodes of these kinds, those of the broker's own left out; ``only`` sorts out."""
        wanted = set(kinds)
        return [
            node.name
            for node in self._engine.topology.every_node()
            if node.kind in wanted
            and (node.is_subscription or not node.name.startswith("$"))
            and (only is None or only(node))
        ]

    def page(
        self,
        kind: str,
        columns: Sequence[str],
        offset: int,
        count: int,
        sort: str = "",
        pattern: str = "",
        only: Only = None,
    ) -> Page:
        """Part of a sorted list of nodes in one turn: short, for only ``QUICK`` attributes can be sorted by.

        ``sort`` is one of them, or the sum of several with `+` between; with `-` in front from the greatest.
        """
        names, downwards = (sort.removeprefix("-") or "name").split("+"), sort.startswith("-")
        for name in names:
            if name not in QUICK or (len(names) > 1 and name == "name"):
                raise OperatorError(
                    f"can't sort by {name!r}; by {', '.join(QUICK)}, or sums of them with '+'"
                )
        check_columns([PREFIX + kind], columns)
        matches = matcher(pattern)
        found = [name for name in self.nodes([kind], only) if matches(name)]
        keys = [_sum(each) for each in zip(*(self.keys(found, name) for name in names), strict=True)]
        pairs = ordered(list(zip(keys, found, strict=True)), lambda pair: pair[0], downwards)
        rows = self.rows([name for _, name in pairs[offset : offset + count]], columns)
        shown = tuple(dict.fromkeys(columns)) or tuple(names_of(kind))
        return Page(shown, tuple(tuple(row.get(name) for name in shown) for row in rows), len(found))

    def keys(self, found: Sequence[str], attribute: str) -> list[object]:
        """One attribute of each of these nodes, None for those that are gone."""
        read = QUICK.get(attribute) or self._reader(attribute)
        known = [self._node(name) for name in found]
        return [None if node is None else read(node) for node in known]

    def rows(self, found: Sequence[str], columns: Sequence[str]) -> list[dict[str, object]]:
        """Attributes of these nodes, all without ``columns``; those that are gone are left out."""
        known = [node for node in map(self._node, found) if node is not None]
        return [self._entities.row(PREFIX + node.kind, node, columns) for node in known]

    def others(self, type_: str, node: str = "") -> Generator[None, None, list[object]]:
        """Views of all entities of a type that are no nodes, or of one node's links; one after each ``next``.

        Any thread may read them, with ``row``.
        """
        kind = type_.removeprefix(PREFIX)
        if node or kind not in CLIENTS:
            return self._entities.every(type_, node)
        found: list[object] = []
        for view in self._links.every(kind):
            found.append(view)
            yield
        return found

    def row(self, type_: str, view: object) -> dict[str, object]:
        """All attributes of one of ``others``."""
        return self._entities.row(type_, view)

    def _node(self, name: str) -> Node | None:
        return self._engine.topology.nodes.get(name) or self._engine.topology.subscriptions.get(name)

    def _reader(self, attribute: str) -> Callable[[Node], object]:
        return lambda node: self._entities.row(PREFIX + node.kind, node, (attribute,))[attribute]


def names_of(kind: str) -> list[str]:
    """The attributes of a kind of node."""
    return names(PREFIX + kind)


def _sum(values: Sequence[object]) -> object:
    """One value as it is; of several their sum, if all are numbers."""
    if len(values) == 1:
        return values[0]
    figures = [value for value in values if isinstance(value, int | float)]
    return sum(figures) if len(figures) == len(values) else None


def at_once(attribute: str) -> int:
    """Of how many nodes ``keys`` may be asked this attribute in one turn."""
    return VALUES_AT_ONCE if attribute in QUICK else ROWS_AT_ONCE


def check_columns(types: Sequence[str], wanted: Sequence[str]) -> None:
    """OperatorError if one of these is no attribute of any of the types."""
    known = {name for type_ in types for name in names(type_)}
    for name in wanted:
        if name not in known:
            raise OperatorError(f"unknown attribute {name!r}")


def _quick(attribute: str) -> Callable[[Node], object]:
    if attribute == "name":
        return lambda node: node.name
    whole = stat_of(attribute).whole
    return lambda node: whole(node, 0, False)


# Attributes that are read without the whole view of each node.
QUICK: Mapping[str, Callable[[Node], object]] = {attribute: _quick(attribute) for attribute in SORTABLE}

NODE_TYPES = tuple(PREFIX + kind for kind in NODE_KINDS)
