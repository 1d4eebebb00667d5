"""The wait-for graph against a plain reference: whatever happens, the circles that stand are known."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator

import pytest

from broker.flow.deadlock import GRACE_NS, LOOK_NS, Scene, Waits

pytestmark = pytest.mark.flow

NODES = range(6)
CONNECTIONS = [f"c{i}" for i in range(6)]
STEPS = 400


class World(Scene):
    """Who is attached where, and who wants to send; nothing ever moves by itself."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.stopped: dict[Hashable, tuple[set[Hashable], set[Hashable]]] = {}
        self.held: set[Hashable] = set()
        self.idle: set[tuple[Hashable, Hashable]] = set()
        self.moved: dict[Hashable, int] = dict.fromkeys((*NODES, *CONNECTIONS), 0)
        self.still_since: dict[Hashable, int] = {}

    def is_stopped(self, node: Hashable) -> bool:
        return node not in self.held

    def drainers(self, node: Hashable) -> frozenset[Hashable]:
        return frozenset(self.stopped[node][0])

    def left(self, node: Hashable) -> int:
        return self.moved[node]

    def settled(self, connection: Hashable) -> int:
        return self.moved[connection]

    def wants(self, connection: Hashable, node: Hashable) -> bool:
        return (connection, node) not in self.idle

    def stuck(self) -> set[Hashable]:
        """Nodes that nobody can ever drain, sought by taking away who has a way out."""
        doomed = {node for node, (takers, _) in self.stopped.items() if takers and node not in self.held}
        while True:
            waits = {
                each
                for each in CONNECTIONS
                if any(each in self.stopped[n][1] and self.wants(each, n) for n in doomed)
            }
            left = {node for node in doomed if self.stopped[node][0] <= waits}
            if left == doomed:
                return doomed
            doomed = left

    def circles(self) -> set[frozenset[Hashable]]:
        """Those of them that can be reached from themselves, by mutual reach."""
        doomed = self.stuck()
        ways = {
            node: {
                target
                for target in doomed
                for each in self.stopped[node][0]
                if each in self.stopped[target][1] and self.wants(each, target)
            }
            for node in doomed
        }
        reach = {node: set(_reached(node, ways)) for node in doomed}
        return {
            frozenset(other for other in reach[node] if node in reach[other])
            for node in doomed
            if node in reach[node]
        }


def _reached(start: Hashable, ways: dict[Hashable, set[Hashable]]) -> Iterator[Hashable]:
    pending, seen = list(ways[start]), set(ways[start])
    while pending:
        node = pending.pop()
        yield node
        for target in ways[node] - seen:
            seen.add(target)
            pending.append(target)


def change(world: World, waits: Waits) -> None:
    """One event, as the broker would tell of it."""
    dice = world.dice
    node = dice.choice(NODES)
    match dice.choice(("links", "links", "links", "links", "links", "open", "hold", "idle", "move")):
        case "links":
            takers: set[Hashable] = set(dice.sample(CONNECTIONS, dice.choice((0, 1, 1, 1, 2))))
            senders: set[Hashable] = set(dice.sample(CONNECTIONS, dice.choice((0, 1, 1, 2))))
            world.stopped[node] = (takers, senders)
            waits.put(node, takers, senders)
        case "open":
            world.stopped.pop(node, None)
            waits.drop(node)
        case "hold":
            world.held ^= {node}
        case "idle":
            world.idle ^= {(dice.choice(CONNECTIONS), node)}
        case "move":
            world.moved[dice.choice((*NODES, *CONNECTIONS))] += 1


@pytest.mark.parametrize("seed", range(6))
def test_the_known_circles_are_those_that_stand(seed: int) -> None:
    world = World(random.Random(seed))
    waits = Waits()
    now_ns = 10 * GRACE_NS
    seen = 0
    for _ in range(STEPS):
        for _ in range(world.dice.choice((1, 1, 3))):
            change(world, waits)
        # Up to what lets whoever stands still count as stuck, though its pauses were learned.
        for _ in range(world.dice.choice((1, 8, 150))):
            before = waits.circles
            now_ns += LOOK_NS
            told = waits.look(now_ns, world)
            # Never one that doesn't stand; of one, perhaps not yet who joined it just now.
            assert all(any(set(each.nodes) <= true for true in world.circles()) for each in waits.circles)
            # Told when it comes and when it goes, and not in between.
            assert set(told.found) == {each for each in waits.circles if not any(map(each.touches, before))}
            assert set(told.cleared) == {each for each in before if not any(map(each.touches, waits.circles))}
        seen += len(waits.circles)
    assert seen > 0
    for _ in range(700):
        now_ns += LOOK_NS
        waits.look(now_ns, world)
    assert {frozenset(circle.nodes) for circle in waits.circles} == world.circles()
