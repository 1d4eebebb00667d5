"""Who waits for whom, and who for ever: stopped nodes and the connections between them, as a graph.

A stopped node waits for the connections that hold its messages or should take them; a connection waits
for the stopped nodes it wants to send to. Where everybody in a circle waits, nothing but somebody from
outside ends it. The broker sees only what crosses the wire: that a connection settles nothing because it
can't send is inferred, so a circle is a warning and changes nothing.

Nodes and connections are opaque here. It knows no clock: time is an argument.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

# A node that loses no message and a connection that settles none for so long is stuck, if it waits.
GRACE_NS = 500_000_000
# A connection that was seen to pause between two settlements is given so many times its longest pause,
# up to a bound: one that works on each message for seconds isn't stuck.
PATIENCE = 2
LONGEST_GRACE_NS = 60_000_000_000
# How often those that may be stuck are looked at, and how much less often for each of them.
LOOK_NS = 100_000_000
LOOK_EACH_NS = 250_000
# How long the pauses of one that isn't looked at any more are remembered.
MEMORY_NS = 300_000_000_000


class Scene:
    """What a look asks of the broker; it is asked only of those that may be in a circle."""

    def is_stopped(self, node: Hashable) -> bool:
        """Whether its thresholds stop its producers, and neither an operator nor time will change that."""
        raise NotImplementedError

    def drainers(self, node: Hashable) -> frozenset[Hashable]:
        """Those who alone can take a message out of it, by the messages that are in it now."""
        raise NotImplementedError

    def left(self, node: Hashable) -> int:
        """A number that grows with every message that leaves the node."""
        raise NotImplementedError

    def settled(self, connection: Hashable) -> int:
        """A number that grows with every message the connection settles."""
        raise NotImplementedError

    def wants(self, connection: Hashable, node: Hashable) -> bool:
        """Whether the connection is known to want to send to the node, and can't."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """A stopped node, a connection it waits for, and the stopped node that one can't send to."""

    node: Hashable
    connection: Hashable
    target: Hashable


@dataclass(frozen=True, slots=True)
class Circle:
    """Nodes and connections that wait for each other, in the order they do where there is one."""

    nodes: tuple[Hashable, ...]
    connections: tuple[Hashable, ...]
    waits: tuple[WaitsFor, ...]
    since_ns: int

    def touches(self, other: Circle) -> bool:
        """Whether they have a node in common: then they are one, which has grown or shrunk."""
        return not set(self.nodes).isdisjoint(other.nodes)


@dataclass(frozen=True, slots=True)
class DeadlockChange:
    """What a look found: circles that are new, and those that are no more."""

    found: tuple[Circle, ...]
    cleared: tuple[Circle, ...]


class _Pulse:
    """When something last moved, and the longest it ever took to."""

    __slots__ = ("longest_ns", "seen_ns", "since_ns", "state")

    def __init__(self, state: object, now_ns: int) -> None:
        self.state = state
        self.since_ns = now_ns
        self.seen_ns = now_ns
        self.longest_ns = 0

    def look(self, state: object, now_ns: int) -> None:
        self.seen_ns = now_ns
        if state != self.state:
            self.state = state
            self.longest_ns = max(self.longest_ns, now_ns - self.since_ns)
            self.since_ns = now_ns

    def resume(self, now_ns: int) -> None:
        """It wasn't looked at for a while: nothing is known of that time."""
        self.since_ns = now_ns

    def is_over(self, patience: int, now_ns: int) -> bool:
        """Whether it counts as stopped."""
        grace_ns = min(max(GRACE_NS, patience * self.longest_ns), LONGEST_GRACE_NS)
        return now_ns - self.since_ns >= grace_ns


class Waits:
    """The graph of all stopped nodes; ``circles`` are those that were found and still stand.

    It is kept from one event to the next: ``put`` whenever a stopped node's links change, ``drop`` when it
    opens. A look has three steps:

    1. *Suspects* are the stopped nodes from which a circle can be reached at all, by who is attached
       where. They are sought again only after the graph has changed; mostly there are none.
    2. A suspect is *doomed* if all that can drain it are stuck and it has lost nothing for a while; a
       connection is *stuck* if it wants to send to a doomed node and has settled nothing for a while.
       Both begin as true of everybody, and whoever has a way out is taken away until nobody has.
    3. What is left runs in circles: its strongly connected parts are the deadlocks.
    """

    def __init__(self) -> None:
        self.circles: list[Circle] = []
        self._takers: dict[Hashable, frozenset[Hashable]] = {}
        self._senders: dict[Hashable, frozenset[Hashable]] = {}
        self._targets: dict[Hashable, set[Hashable]] = {}
        self._suspects: set[Hashable] = set()
        self._pulses: dict[Hashable, _Pulse] = {}
        self._standing: frozenset[Hashable] = frozenset()
        self._changed = False

    def put(self, node: Hashable, takers: Iterable[Hashable], senders: Iterable[Hashable]) -> None:
        """A stopped node with the connections that are attached to it now, to receive and to send."""
        self._unlink(node)
        self._takers[node] = frozenset(takers)
        self._senders[node] = frozenset(senders)
        for connection in self._senders[node]:
            self._targets.setdefault(connection, set()).add(node)
        self._changed = True

    def drop(self, node: Hashable) -> None:
        """The node is open, or gone."""
        if node not in self._takers:
            return
        self._unlink(node)
        del self._takers[node], self._senders[node]
        self._changed = True

    def look(self, now_ns: int, scene: Scene) -> DeadlockChange:
        """Find who is stuck now; each circle is found once and cleared once."""
        if self._changed:
            self._changed = False
            self._suspects = self._sought()
            self._forget(now_ns)
        doomed, stuck = self._settled_on(now_ns, scene)
        present = [self._circle(part, doomed, stuck) for part in _parts(_edges(doomed, stuck))]
        cleared = tuple(old for old in self.circles if not any(old.touches(each) for each in present))
        found = tuple(each for each in present if not any(each.touches(old) for old in self.circles))
        self.circles = present
        self._standing = frozenset(
            member for circle in present for member in (*circle.nodes, *circle.connections)
        )
        return DeadlockChange(found, cleared)

    def next_look(self, now_ns: int) -> int:
        """When to look again though nothing changes; 0 for never."""
        if not self._suspects and not self._changed and not self.circles:
            return 0
        return now_ns + min(LOOK_NS + len(self._suspects) * LOOK_EACH_NS, GRACE_NS // 2)

    def _unlink(self, node: Hashable) -> None:
        for connection in self._senders.get(node, ()):
            targets = self._targets[connection]
            targets.discard(node)
            if not targets:
                del self._targets[connection]

    def _sought(self) -> set[Hashable]:
        """Step 1."""
        suspects = {
            node for node, takers in self._takers.items() if any(each in self._targets for each in takers)
        }
        while True:
            out = {node for node in suspects if not self._may_lead_on(node, suspects)}
            if not out:
                return suspects
            suspects -= out

    def _may_lead_on(self, node: Hashable, suspects: set[Hashable]) -> bool:
        return any(
            not suspects.isdisjoint(self._targets[taker])
            for taker in self._takers[node]
            if taker in self._targets
        )

    def _settled_on(
        self, now_ns: int, scene: Scene
    ) -> tuple[dict[Hashable, frozenset[Hashable]], dict[Hashable, set[Hashable]]]:
        """Step 2: doomed nodes with who could drain them, stuck connections with what they wait for."""
        doomed: dict[Hashable, frozenset[Hashable]] = {}
        for node in self._suspects:
            drainers = scene.drainers(node) if scene.is_stopped(node) else frozenset()
            # Who is the first to hold its messages, or the last, has just begun.
            if self._is_still(node, (scene.left(node), drainers), 0, now_ns) and drainers:
                doomed[node] = drainers
        stuck: dict[Hashable, set[Hashable]] = {}
        for connection in {each for node in self._suspects for each in self._takers[node]}:
            if connection not in self._targets:
                continue
            # Looked at whatever it waits for, so that its pauses are known when it does.
            if self._is_still(connection, scene.settled(connection), PATIENCE, now_ns):
                targets = self._targets[connection] & doomed.keys()
                stuck[connection] = {node for node in targets if scene.wants(connection, node)}
        while True:
            out = [node for node, drainers in doomed.items() if not all(stuck.get(each) for each in drainers)]
            if not out:
                return doomed, {each: targets for each, targets in stuck.items() if targets}
            for node in out:
                del doomed[node]
            for targets in stuck.values():
                targets.difference_update(out)

    def _is_still(self, subject: Hashable, state: object, patience: int, now_ns: int) -> bool:
        pulse = self._pulses.get(subject)
        if pulse is None:
            self._pulses[subject] = _Pulse(state, now_ns)
            return False
        # Whoever stands in a circle and hasn't moved since was stuck all the while.
        if now_ns - pulse.seen_ns > GRACE_NS and (subject not in self._standing or state != pulse.state):
            pulse.resume(now_ns)
        pulse.look(state, now_ns)
        return pulse.is_over(patience, now_ns)

    def _forget(self, now_ns: int) -> None:
        old = [each for each, pulse in self._pulses.items() if now_ns - pulse.seen_ns > MEMORY_NS]
        for subject in old:
            del self._pulses[subject]

    def _circle(
        self,
        part: set[Hashable],
        doomed: dict[Hashable, frozenset[Hashable]],
        stuck: dict[Hashable, set[Hashable]],
    ) -> Circle:
        """Walk it from the node on that was put first; what the way misses follows behind."""
        waits: list[WaitsFor] = []
        seen: dict[Hashable, None] = {}
        pending = [node for node in self._takers if node in part]
        following = pending[:1]
        while following or pending:
            node = following.pop() if following else pending.pop(0)
            if node in seen:
                continue
            seen[node] = None
            for connection in doomed[node]:
                targets = [each for each in stuck.get(connection, ()) if each in part]
                waits += [WaitsFor(node, connection, target) for target in targets]
                following += targets
        members = {each for wait in waits for each in (wait.node, wait.connection)}
        return Circle(
            nodes=tuple(seen),
            connections=tuple(dict.fromkeys(wait.connection for wait in waits)),
            waits=tuple(waits),
            since_ns=max(self._pulses[each].since_ns for each in members),
        )


def _edges(
    doomed: dict[Hashable, frozenset[Hashable]], stuck: dict[Hashable, set[Hashable]]
) -> dict[Hashable, list[Hashable]]:
    """Node to node: where those who could drain one can't send."""
    return {
        node: [target for each in drainers for target in stuck.get(each, ())]
        for node, drainers in doomed.items()
    }


def _parts(edges: dict[Hashable, list[Hashable]]) -> Iterator[set[Hashable]]:
    """The strongly connected parts that hold a circle (Tarjan), without recursion: a ring may be long."""
    order: dict[Hashable, int] = {}
    low: dict[Hashable, int] = {}
    path: list[Hashable] = []
    inside: set[Hashable] = set()
    for root in edges:
        if root in order:
            continue
        work = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        path.append(root)
        inside.add(root)
        while work:
            node, ways = work[-1]
            for target in ways:
                if target not in order:
                    order[target] = low[target] = len(order)
                    path.append(target)
                    inside.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in inside:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    part = _cut(path, node)
                    inside -= part
                    if len(part) > 1 or node in edges[node]:
                        yield part


def _cut(path: list[Hashable], node: Hashable) -> set[Hashable]:
    at = path.index(node)
    part = set(path[at:])
    del path[at:]
    return part
