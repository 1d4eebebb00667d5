"""Bridges: what arrives at one node is copied into another (FLOW §6).

A copy crosses no further bridge, as in TIBCO EMS: bridges are not transitive. Where both ends have flow
control, producers of the source need room in the target too, each credit reserved there; everywhere else
the target's fullness stops nobody, and its `overflow` says what becomes of a copy. Only this file knows
which nodes need room where because of a bridge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker.engine.node import Bridge, Node, bridge_name
from broker.engine.turn import Turn
from broker.errors import ConflictError, OperatorError

if TYPE_CHECKING:
    from broker.queues.queue import Filter


class Bridges:
    """All bridges there are; ``look`` is called whenever something about a node has changed.

    ``update_claims`` is called with a node whose messages need room in other places from now on.
    """

    def __init__(self, turn: Turn, update_claims: Callable[[Node], None]) -> None:
        self._turn = turn
        self._update_claims = update_claims
        self.all: list[Bridge] = []

    def add(self, source: Node, target: Node, keep: Filter | None = None) -> Bridge:
        """A new bridge. ConflictError if there is one, OperatorError if it would close a cycle."""
        if any(each.target is target for each in source.bridges):
            raise ConflictError(f"'{bridge_name(source.name, target.name)}' exists already")
        way = _way(target, source)
        if way:
            text = " -> ".join(node.name for node in (source, *way))
            raise OperatorError(
                f"a bridge from '{source.name}' to '{target.name}' would close a cycle: {text}"
            )
        bridge = Bridge(source, target, keep)
        source.bridges.append(bridge)
        self.all.append(bridge)
        self._couple(bridge)
        return bridge

    def remove(self, bridge: Bridge) -> None:
        """It copies no more; producers that its target held back go on."""
        self.all.remove(bridge)
        bridge.source.bridges.remove(bridge)
        self._reserve(bridge, [])
        self._settle(bridge)

    def drop(self, node: Node) -> None:
        """A node is gone, and with it the bridges at it."""
        for bridge in [each for each in self.all if node in (each.source, each.target)]:
            self.remove(bridge)

    def look(self, node: Node) -> None:
        """A node has new settings, subscriptions or a place in the store: room may be needed elsewhere."""
        for bridge in self.all:
            source, target = bridge.source, bridge.target
            if node in (source, target) or node in source.topics or node in target.subscriptions:
                self._couple(bridge)

    def takers(self, node: Node) -> Iterator[Node]:
        """Every node where a message to this address comes to lie, the node itself included."""
        for part in (node, *node.subscriptions):
            yield part
            for bridge in part.bridges:
                yield from (bridge.target, *bridge.target.subscriptions)

    def rivals(self, node: Node) -> list[Node]:
        """Whose producers share room with this node's because of a bridge; each once, itself left out."""
        shared = [taker for bridge in self.all for owner, taker in bridge.coupled if owner is node]
        if node.bridge_sources:
            shared.append(node)
        shared += [part for part in node.subscriptions if part.bridge_sources]
        owners = dict.fromkeys(owner for taker in shared for owner in taker.owners())
        owners.pop(node, None)
        return list(owners)

    def _couple(self, bridge: Bridge) -> None:
        """Reserve room in the target for those who send to the source, or no longer."""
        source, target = bridge.source, bridge.target
        bridge.crosses = has_flow_control(source) and has_flow_control(target)
        wanted: list[tuple[Node, Node]] = []
        if bridge.crosses:
            parts = target.subscriptions if target.is_topic else [target]
            takers = [each for each in parts if not each.never_blocks_publishers]
            wanted = [(owner, taker) for owner in (source, *source.topics) for taker in takers]
        self._reserve(bridge, wanted)
        self._settle(bridge)

    def _reserve(self, bridge: Bridge, wanted: list[tuple[Node, Node]]) -> None:
        for owner, taker in bridge.coupled:
            if (owner, taker) not in wanted:
                owner.allocator.detach_gate(taker.gate)
                taker.bridge_sources.remove(owner)
        for owner, taker in wanted:
            if (owner, taker) not in bridge.coupled:
                owner.allocator.attach_gate(taker.gate, self._turn.now_ns)
                taker.bridge_sources.append(owner)
        bridge.coupled = wanted

    def _settle(self, bridge: Bridge) -> None:
        """How often a message is held, and which budgets it needs room in."""
        for owner in (bridge.source, *bridge.source.topics):
            places = len(list(self.takers(owner))) - sum(each.is_topic for each in self.takers(owner))
            owner.allocator.copy(places)
            self._update_claims(owner)
            self._turn.mark_dirty(owner)


def has_flow_control(node: Node) -> bool:
    """Whether an end of a bridge is flow-controlled: not switched off, and with a threshold."""
    settings = node.settings
    return settings.flow_control and bool(settings.flow_stop_count or settings.flow_stop_size)


def _way(start: Node, end: Node) -> list[Node]:
    """How messages at ``start`` come to ``end``, over bridges and bindings; empty if they don't."""
    pending: list[list[Node]] = [[start]]
    seen: set[Node] = set()
    while pending:
        way = pending.pop()
        last = way[-1]
        if last is end:
            return way
        if last in seen:
            continue
        seen.add(last)
        following = [each.target for each in last.bridges] + list(last.subscriptions)
        pending += [[*way, node] for node in following]
    return []
