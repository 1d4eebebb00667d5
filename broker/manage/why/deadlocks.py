"""The wait-for graph of a live broker: which nodes and connections wait for each other, and since when.

The engine notes every node whose gate or links changed (``Engine.take_changed_nodes``); only stopped nodes
are in the graph. Nothing here is on the message path: who wants to send is read when the graph is looked
at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, cast

from broker import constants
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.deadlock import Circle, Scene, Waits, WaitsFor
from broker.flow.producer_credit import ProducerCredit
from broker.units import SECOND_NS

log = logging.getLogger("sluice.flow")

# How soon after a change the graph is looked at; changes in between cost nothing more.
SOON_NS = 50_000_000
# Nodes that are read anew in one look: the others' turn comes soon.
MOST_AT_ONCE = 500
# A queue whose next message expires within this time isn't stuck.
EXPIRES_NS = 60 * SECOND_NS
# Members that a sentence names.
NAMED = 12


class Party(Protocol):
    """A connection, as the room that knows the wire has it."""

    id: str
    name: str
    address: str

    def settled_msgs(self) -> int:
        """How many messages its consumers have settled, or taken pre-settled."""


@dataclass(frozen=True, slots=True)
class DeadlockView:
    """Nodes and connections that wait for each other. ``sentence`` says how; ``waits`` says it for a picture,
    each a node, the connection it waits for, and the target that one waits for.
    """

    nodes: tuple[str, ...]
    connections: tuple[str, ...]
    since_ns: int
    sentence: str
    waits: tuple[Mapping[str, str], ...] = ()


class DeadlockWatch(Scene):
    """Keeps the graph; ``wake`` is told when ``look`` is due next, for which ``catch_up`` hands over what
    changed until then.
    """

    def __init__(self, engine: Engine, catch_up: Callable[[], None]) -> None:
        self.engine = engine
        self.catch_up = catch_up
        self.found_total = 0
        self.wake: Callable[[int], None] | None = None
        self._waits = Waits()
        # In order, each once.
        self._changed: dict[Node, None] = {}
        self._senders: dict[Node, dict[object, list[tuple[Node, ProducerCredit]]]] = {}
        self._armed = False

    def changed(self, node: Node) -> None:
        """A gate opened or closed, or a link came or went."""
        for each in node.subscriptions if node.is_topic else (node,):
            if each.gate.closed or each in self._senders:
                self._changed[each] = None

    def stir(self) -> None:
        """Something changed: look soon."""
        self._arm(self.engine.turn.now_ns + SOON_NS)

    def look(self, now_ns: int) -> None:
        """Find new deadlocks and those that are over, and say so."""
        self._armed = False
        if self.engine.delivery.winding_down:
            return
        self.catch_up()
        for node in list(islice(self._changed, MOST_AT_ONCE)):
            del self._changed[node]
            self._refresh(node)
        change = self._waits.look(now_ns, self)
        for circle in change.found:
            self.found_total += 1
            view = view_of(circle)
            log.warning("deadlock: %s", view.sentence)
            self.engine.changes.emit("deadlock", None, _told(view))
        for circle in change.cleared:
            view = view_of(circle)
            log.info("deadlock over: %s", ", ".join(f"'{name}'" for name in view.nodes))
            self.engine.changes.emit("deadlock_cleared", None, _told(view))
        due = now_ns + SOON_NS if self._changed else self._waits.next_look(now_ns)
        if due:
            self._arm(due)

    def views(self) -> tuple[DeadlockView, ...]:
        """Those that stand."""
        return tuple(view_of(circle) for circle in self._waits.circles)

    def of(self, node: Node) -> DeadlockView | None:
        """The deadlock that a node, or one of a topic's subscriptions, is in."""
        parts = {node, *node.subscriptions}
        for circle in self._waits.circles:
            if not parts.isdisjoint(cast("tuple[Node, ...]", circle.nodes)):
                return view_of(circle)
        return None

    # --- what a look asks

    def is_stopped(self, node: Hashable) -> bool:
        """Stopped by a threshold: an operator's hold is somebody's to lift, and what expires leaves."""
        assert isinstance(node, Node)
        return node.gate.full and not node.gate.held and not node.deleted and not self._expires_soon(node)

    def drainers(self, node: Hashable) -> frozenset[Hashable]:
        """Connections with a consumer that may be sent one of its messages, or holds one; None for the
        broker itself, that moves some elsewhere for an operator or as dead letters.
        """
        assert isinstance(node, Node)
        queue = node.queue
        takers = [each for each in node.consumers if each.in_flight > 0]
        if queue.ready or queue.pending or queue.behind or queue.gap:
            active = node.active_consumer() if node.hot.single_active else None
            takers += [each for each in node.consumers if active in (None, each) or not each.joins_groups]
        by_itself = {None} if queue.acquired > sum(each.in_flight for each in node.consumers) else set()
        return frozenset((*by_itself, *(each.origin for each in takers)))

    def left(self, node: Hashable) -> int:
        """All that ever came in less what is there."""
        assert isinstance(node, Node)
        return node.received - node.gate.depth_msgs

    def settled(self, connection: Hashable) -> int:
        """Of all its consumers."""
        return cast("Party", connection).settled_msgs()

    def wants(self, connection: Hashable, node: Hashable) -> bool:
        """Known by a message that waits, by credit that it used up to the last, or because it says so in a
        flow (`available`): a link that never had credit, or lost it unused, may have nothing to send.
        """
        assert isinstance(node, Node)
        return any(_wants(owner, account) for owner, account in self._senders[node].get(connection, ()))

    def _expires_soon(self, node: Node) -> bool:
        due_ns = 0 if node.expiry is None else node.expiry.next_deadline()
        return 0 < due_ns < self.engine.turn.now_ns + EXPIRES_NS

    def _refresh(self, node: Node) -> None:
        if node.deleted or not node.gate.closed:
            self._senders.pop(node, None)
            self._waits.drop(node)
            return
        senders: dict[object, list[tuple[Node, ProducerCredit]]] = {}
        for owner in node.owners():
            for account in owner.allocator.accounts:
                if account.origin is not None:
                    senders.setdefault(account.origin, []).append((owner, account))
        self._senders[node] = senders
        takers = [each.origin for each in node.consumers if each.origin is not None]
        if takers and senders:
            self._waits.put(node, takers, senders)
        else:
            self._waits.drop(node)

    def _arm(self, due_ns: int) -> None:
        if not self._armed and self.wake is not None:
            self._armed = True
            self.wake(due_ns)


def view_of(circle: Circle) -> DeadlockView:
    """A circle by the names of its members."""
    nodes = cast("tuple[Node, ...]", circle.nodes)
    connections = cast("tuple[Party, ...]", circle.connections)
    return DeadlockView(
        nodes=tuple(node.name for node in nodes),
        connections=tuple(_label(each) for each in connections),
        since_ns=circle.since_ns,
        sentence=_sentence(circle.waits),
        waits=tuple(_named(wait) for wait in circle.waits[:NAMED]),
    )


def _wants(node: Node, account: ProducerCredit) -> bool:
    if account.window_max == 0 and node.hot.when_full != constants.FULL_BLOCK:
        # It is refused, at once or when its time is over.
        return False
    if account.parked:
        return True
    if not account.waiting or account.outstanding > 0:
        return False
    used_up = account.used > 0 and account.blocked_since_ns == account.last_used_ns
    return used_up or account.port.offered() > 0


def _sentence(waits: tuple[WaitsFor, ...]) -> str:
    steps = []
    for wait in waits[:NAMED]:
        node, target = cast("Node", wait.node), cast("Node", wait.target)
        there = "it as well" if target is node else f"'{target.name}'"
        steps.append(
            f"'{node.name}' waits for {_label(cast('Party', wait.connection))}, which waits for {there}"
        )
    if len(waits) > NAMED:
        steps.append(f"and {len(waits) - NAMED:,} more")
    return "; ".join(steps)


def _named(wait: WaitsFor) -> Mapping[str, str]:
    return {
        "node": cast("Node", wait.node).name,
        "connection": _label(cast("Party", wait.connection)),
        "target": cast("Node", wait.target).name,
    }


def _label(party: Party) -> str:
    return f"{party.id} of '{party.name}' ({party.address})"


def _told(view: DeadlockView) -> dict[str, object]:
    return {"nodes": list(view.nodes), "connections": list(view.connections), "sentence": view.sentence}
