"""The bridges that somebody defined: in the broker's file, or at runtime, kept where they are durable.

A bridge whose ends aren't both there waits for them; it takes effect with the second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

from broker.config.forwards import BridgeDefinition
from broker.engine.engine import Engine
from broker.engine.node import Bridge, Node, bridge_name
from broker.errors import ConflictError, NotFoundError, OperatorError, SelectorError
from broker.queues.queue import Filter
from broker.queues.selector.selector import compile_selector

# The store's notes of durable bridges, by name.
BRIDGE_NOTE = "bridge/"


@dataclass(frozen=True, slots=True)
class BridgeView:
    """One bridge as it stands; ``state`` is ``open`` or ``waiting`` with the reason why.

    ``crosses``: whether backpressure does.
    """

    name: str
    source: str
    target: str
    selector: str
    durable: bool
    configured: bool
    state: str
    reason: str
    crosses: bool
    copied: int
    passed_by: int
    refused: int


class _Known:
    def __init__(self, definition: BridgeDefinition, configured: bool) -> None:
        self.definition = definition
        self.configured = configured
        self.bridge: Bridge | None = None
        self.reason = ""


# Finds a node by its name, or makes it, of some kind and for some user, where a policy allows that.
Find = Callable[[str, str | None, str], Node]


class DefinedBridges:
    """All of them by name. ``resolve`` finds the source, ``destination`` what may be sent to."""

    def __init__(self, engine: Engine, resolve: Find, destination: Find) -> None:
        self._engine = engine
        self._resolve = resolve
        self._destination = destination
        self._known: dict[str, _Known] = {}

    def create(self, name: str, attributes: Mapping[str, object], user: str = "") -> str:
        """A bridge at runtime: its name. ``durable`` is what its source is, unless that is said too.
        Ends that aren't there are made for ``user``.

        ConflictError if there is one, OperatorError if an end is missing or it would close a cycle.
        """
        definition = _definition(name, attributes)
        name = bridge_name(definition.source, definition.target)
        if name in self._known:
            raise ConflictError(f"'{name}' exists already")
        known = _Known(definition, False)
        self._open(known, user)
        if definition.durable is None:
            assert known.bridge is not None
            known.definition = _durable(definition, known.bridge.source.shelf is not None)
        self._known[name] = known
        if known.definition.durable:
            self._engine.durability.note(BRIDGE_NOTE + name, json.dumps(asdict(known.definition)).encode())
        return name

    def delete(self, name: str) -> None:
        """Take one away; those of the broker's file come back when that is read again."""
        known = self._known.pop(name, None)
        if known is None:
            raise NotFoundError(f"no bridge named '{name}'")
        self._close(known)
        if known.definition.durable:
            self._engine.durability.note(BRIDGE_NOTE + name, b"")

    def configure(self, definitions: Iterable[BridgeDefinition]) -> None:
        """Those of the broker's file, in place of those it had before. Nothing is refused: a bridge that
        can't be there waits and says why.
        """
        wanted = {bridge_name(each.source, each.target): each for each in definitions}
        for name, known in list(self._known.items()):
            if known.configured and wanted.get(name) != known.definition:
                self._close(self._known.pop(name))
        for name, definition in wanted.items():
            if name not in self._known:
                self._known[name] = known = _Known(definition, True)
                self._try(known)

    def restore(self, value: bytes) -> None:
        """One that survived a restart, once the nodes have."""
        definition = BridgeDefinition(**json.loads(value))
        known = _Known(definition, False)
        self._known[bridge_name(definition.source, definition.target)] = known
        self._try(known)

    def node_made(self, node: Node) -> None:
        """Bridges that waited for it take effect."""
        for known in self._known.values():
            if known.bridge is None and node.name in (known.definition.source, known.definition.target):
                self._try(known)

    def node_gone(self, node: Node) -> None:
        """Its bridges wait until there is one of its name again."""
        for known in self._known.values():
            if known.bridge is not None and node in (known.bridge.source, known.bridge.target):
                known.bridge = None
                known.reason = f"'{node.name}' was deleted"

    def views(self) -> list[BridgeView]:
        """All of them as they stand."""
        return [_view(name, known) for name, known in self._known.items()]

    def _try(self, known: _Known) -> None:
        try:
            self._open(known)
        except OperatorError as fault:
            known.reason = str(fault)

    def _open(self, known: _Known, user: str = "") -> None:
        definition = known.definition
        keep = _filter(definition.selector)
        # The one that may be refused is looked at first: a refusal makes no node.
        target = self._destination(definition.target, None, user)
        source = self._resolve(definition.source, None, user)
        if known.bridge is None:  # else making the second end has opened it
            known.bridge = self._engine.topology.bridging.add(source, target, keep)
            known.reason = ""

    def _close(self, known: _Known) -> None:
        if known.bridge is not None:
            self._engine.topology.bridging.remove(known.bridge)


def ends_of(name: str, attributes: Mapping[str, object]) -> tuple[str, str]:
    """The nodes a bridge is to join; ends that CREATE doesn't name are read from the name, ``FROM->TO``."""
    source, _, target = name.partition("->")
    source, target = attributes.get("from", source), attributes.get("to", target)  # type: ignore[assignment]
    if not isinstance(source, str) or not isinstance(target, str) or not source or not target:
        raise OperatorError("a bridge needs 'from' and 'to', the names of two nodes")
    return source, target


def _definition(name: str, attributes: Mapping[str, object]) -> BridgeDefinition:
    """The body of CREATE."""
    unknown = attributes.keys() - {"from", "to", "selector", "durable", "name"}
    if unknown:
        raise OperatorError(f"unknown attribute {sorted(unknown)[0]!r} of a bridge")
    source, target = ends_of(name, attributes)
    selector, durable = attributes.get("selector") or "", attributes.get("durable")
    if not isinstance(selector, str):
        raise OperatorError("'selector' must be a text")
    if durable is not None and not isinstance(durable, bool):
        raise OperatorError("'durable' must be true or false")
    return BridgeDefinition(source, target, selector, durable)


def _filter(selector: str) -> Filter | None:
    if not selector:
        return None
    try:
        return compile_selector(selector)
    except SelectorError as fault:
        raise OperatorError(f"the selector is none: {fault}") from None


def _durable(definition: BridgeDefinition, durable: bool) -> BridgeDefinition:
    return BridgeDefinition(definition.source, definition.target, definition.selector, durable)


def _view(name: str, known: _Known) -> BridgeView:
    bridge, definition = known.bridge, known.definition
    return BridgeView(
        name=name,
        source=definition.source,
        target=definition.target,
        selector=definition.selector,
        durable=bool(definition.durable),
        configured=known.configured,
        state="waiting" if bridge is None else "open",
        reason=known.reason,
        crosses=bridge is not None and bridge.crosses,
        copied=0 if bridge is None else bridge.copied,
        passed_by=0 if bridge is None else bridge.passed_by,
        refused=0 if bridge is None else bridge.refused,
    )
