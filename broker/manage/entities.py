"""Entities by type, as AMQP Management and HTTP list them: pages of attributes, or one entity whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import NotFoundError, OperatorError
from broker.manage.attributes import CONSUMER, PREFIX, PRODUCER, ROWS, Row, names, shown
from broker.manage.bindings import every_binding
from broker.manage.holds import ProducerHolds
from broker.manage.views import BrokerView, Links, ProducerView, queue_view

NODE_KINDS = ("queue", "topic", "subscription")


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a listing; each result holds the values of ``attribute_names`` in their order."""

    attribute_names: tuple[str, ...]
    results: tuple[tuple[object, ...], ...]
    total: int


class Entities:
    """Reads the engine and the links; it changes nothing. ``broker`` builds the view of the whole, ``others``
    those of what is no node and no link."""

    def __init__(
        self,
        engine: Engine,
        links: Links,
        holds: ProducerHolds,
        epoch_ns: int,
        broker: Callable[[], BrokerView],
        others: Mapping[str, Callable[[], Iterable[object]]] = MappingProxyType({}),
    ) -> None:
        self._engine = engine
        self._links = links
        self._holds = holds
        self._epoch_ns = epoch_ns
        self._broker = broker
        self._more = others

    def query(
        self,
        type_: str | None,
        attribute_names: Sequence[str],
        offset: int,
        count: int,
        only: Callable[[object], bool] | None = None,
    ) -> Page:
        """Entities ``offset`` to ``offset + count`` of a type, or of every type; no names means all. A name
        that comes twice is one column.

        ``only`` sorts out, by node or view, those that are to be there at all.
        """
        found = [item for each in self._types(type_) for item in self._items(each)]
        if only is not None:
            found = [item for item in found if only(item[1])]
        columns = self._columns(type_, attribute_names)
        page = found[offset : offset + count]
        results = tuple(self._values(each, item, columns) for each, item in page)
        return Page(columns, results, len(found))

    def read(self, type_: str, name: str, only: Callable[[object], bool] | None = None) -> dict[str, object]:
        """Every attribute of one entity, found by its name or its identity; ``only`` as for ``query``."""
        kind = self._known(type_)
        for item in self._named(kind, name):
            if only is None or only(item):
                return shown(self._view(item), _rows(kind, item), self._epoch_ns)
        raise NotFoundError(f"no {kind.removeprefix(PREFIX)} named '{name}'")

    def every(self, type_: str, node: str = "") -> list[object]:
        """All entities of a type: nodes as they are, the others as views; links of one node, or of all."""
        if node and type_ == PREFIX + "link":
            return [*self._links.producers(node), *self._links.consumers(node)]
        return [item for _, item in self._items(self._known(type_))]

    def row(self, type_: str, item: object, columns: Sequence[str] = ()) -> dict[str, object]:
        """Attributes of one of them, None for those it hasn't got; all it has without ``columns``."""
        if not columns:
            return shown(self._view(item), _rows(type_, item), self._epoch_ns)
        wanted = tuple(dict.fromkeys(columns))
        return dict(zip(wanted, self._values(type_, item, wanted), strict=True))

    def _types(self, type_: str | None) -> Iterable[str]:
        return ROWS if type_ is None else [self._known(type_)]

    def _known(self, type_: str) -> str:
        if type_ not in ROWS:
            raise NotFoundError(f"no entity type '{type_}'; there are {', '.join(ROWS)}")
        return type_

    def _columns(self, type_: str | None, wanted: Sequence[str]) -> tuple[str, ...]:
        known = dict.fromkeys(name for each in self._types(type_) for name in names(each))
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise OperatorError(f"unknown attribute {unknown[0]!r}")
        return tuple(dict.fromkeys(wanted)) or tuple(known)

    def _items(self, type_: str) -> Iterator[tuple[str, object]]:
        """Nodes as they are, so that only those of the page become views; links as views."""
        kind = type_.removeprefix(PREFIX)
        if kind in NODE_KINDS:
            yield from ((type_, node) for node in self._engine.topology.every_node() if node.kind == kind)
            return
        for item in self._others()[kind]():
            yield type_, item

    def _others(self) -> Mapping[str, Callable[[], Iterable[object]]]:
        return {
            "broker": lambda: [self._broker()],
            "binding": lambda: every_binding(self._engine),
            "connection": self._links.connections,
            "session": self._links.sessions,
            "link": lambda: [*self._links.producers(None), *self._links.consumers(None)],
            **self._more,
        }

    def _named(self, type_: str, name: str) -> Iterator[object]:
        kind = type_.removeprefix(PREFIX)
        if kind in ("queue", "topic"):
            node = self._engine.topology.nodes.get(name)
            if node is not None and node.kind == kind:
                yield node
            return
        if kind == "subscription" and name in self._engine.topology.subscriptions:
            yield self._engine.topology.subscriptions[name]
            return
        if kind == "broker":
            yield self._broker()
            return
        for each, item in self._items(type_):
            if name in _keys(self._view(item), _rows(each, item)):
                yield item

    def _values(self, type_: str, item: object, columns: Sequence[str]) -> tuple[object, ...]:
        rows = _rows(type_, item)
        wanted: Row = {name: rows.get(name, _absent) for name in columns}
        return tuple(shown(self._view(item), wanted, self._epoch_ns).values())

    def _view(self, item: object) -> object:
        if isinstance(item, Node):
            return queue_view(item, self._holds.holding(item.address), self._engine.turn.now_ns)
        return item


def _rows(type_: str, item: object) -> Row:
    if type_ != PREFIX + "link":
        return ROWS[type_]
    return PRODUCER if isinstance(item, ProducerView) else CONSUMER


def _keys(view: object, rows: Row) -> tuple[object, ...]:
    """The names an entity answers to: its identity and its name."""
    return rows["identity"](view, 0), rows["name"](view, 0)


def _absent(view: object, epoch_ns: int) -> object:
    return None
