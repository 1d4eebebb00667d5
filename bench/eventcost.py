"""``python -m bench.eventcost``: what each kind of work for the history of flow takes, in microseconds.

Without sockets and threads, the best of several times, so that a busy machine changes little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.manage.events.observer import NodeObserver
from broker.manage.events.writer import EventWriter, message_of

NODES = 10_000
FLAPS = 20_000
TIMES = 5
SECOND_NS = 1_000_000_000
BODY = bytes(100)


class Cost:
    """An engine of many queues that stop at one message, and its watch."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.begin_turn(SECOND_NS)
        self.watch = NodeObserver(self.engine, lambda: None, lambda name: "")
        self.watch.listen()
        settings = resolve({"flow_stop_count": 1, "flow_resume_count": 1}, BrokerDefaults())
        self.nodes = [self.engine.lifecycle.create(f"q{number}", settings) for number in range(NODES)]
        self.look()

    def look(self) -> float:
        """Compare all nodes as in one interval; the longest part of it, in seconds."""
        self.watch.take()
        self.engine.begin_turn(self.engine.turn.now_ns + SECOND_NS)
        longest, more = 0.0, True
        while more:
            begun = time.perf_counter()
            more = self.watch.look(self.engine.turn.now_ns)
            longest = max(longest, time.perf_counter() - begun)
        return longest

    def work(self) -> None:
        """A message through every queue."""
        for node in self.nodes:
            self.engine.intake.put(node, BODY, 0)
            self.engine.actions.purge(node)

    def flap(self) -> None:
        """One queue stops and opens, many times."""
        for _ in range(FLAPS):
            self.engine.intake.put(self.nodes[0], BODY, 0)
            self.engine.actions.purge(self.nodes[0])


def best(function: Callable[[], object], count: int, before: Callable[[], object] = lambda: None) -> float:
    """Microseconds for each of ``count``."""
    seconds = []
    for _ in range(TIMES):
        before()
        begun = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begun)
    return min(seconds) / count * 1e6


def main() -> int:
    """Prints a line for each."""
    cost = Cost()
    figures = {
        "an idle node, once an interval": best(cost.look, NODES),
        "a busy node, once an interval": best(cost.look, NODES, cost.work),
    }
    longest = []
    for _ in range(TIMES):
        cost.work()
        longest.append(cost.look())
    figures["the longest part of a look at busy nodes, in one turn"] = min(longest) * 1e6
    told = best(cost.flap, 2 * FLAPS)
    cost.engine.changes.on_gate = None
    figures["a change of a gate that flaps"] = told - best(cost.flap, 2 * FLAPS)
    cost.work()
    cost.look()
    events = cost.watch.take()
    teller = EventWriter(0, lambda messages: None)
    lines = [teller.line(event) for event in events]
    figures["its line of JSON, on the other thread"] = best(lambda: [*map(teller.line, events)], len(events))
    figures["its message, on the other thread"] = best(
        lambda: [message_of(*pair) for pair in zip(events, lines, strict=True)], len(events)
    )
    teller.stop(1)
    for name, microseconds in figures.items():
        print(f"{microseconds:10,.2f} µs  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
