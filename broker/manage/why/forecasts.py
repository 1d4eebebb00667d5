"""Forecasts for every stopped gate of a broker: made once a second and whenever somebody asks why."""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.forecast import Forecast
from broker.flow.gate import Gate
from broker.manage.why.cause import COUNT, OPERATOR, SIZE, bars

# Gates that are looked at in one second, in turn where there are more.
MOST_AT_ONCE = 500


class Forecasts:
    """By gate. A gate that was never forecast has none; one of a node that is gone is forgotten."""

    def __init__(self, engine: Engine, catch_up: Callable[[], None]) -> None:
        self._engine = engine
        self._catch_up = catch_up
        self._of: dict[Gate, Forecast] = {}
        # Gates of which something was said since they closed, with how often they had closed by then.
        self._running: dict[Gate, int] = {}
        self._stopped: set[Node] = set()
        self._turn = 0

    def changed(self, node: Node) -> None:
        """A gate opened or closed, or a link came or went."""
        gate = node.gate
        if node.deleted:
            self._stopped.discard(node)
            self._running.pop(gate, None)
            self._of.pop(gate, None)
            return
        if gate.closed:
            self._stopped.add(node)
        else:
            self._stopped.discard(node)
        self._opened(gate)

    def sample(self) -> None:
        """Once a second: a forecast for each gate that is stopped, to be compared when it opens."""
        self._catch_up()
        stopped = list(self._stopped)
        self._turn = (self._turn + MOST_AT_ONCE) % max(len(stopped), 1)
        for node in (stopped[self._turn :] + stopped)[: min(MOST_AT_ONCE, len(stopped))]:
            self.of_node(node)
        for gate in self._budgets():
            self._opened(gate)
            if gate.closed and not gate.held:
                self.of_budget(gate)

    def of_node(self, node: Node) -> float | None:
        """Seconds until its gate opens, its thresholds and drain being what they are; None if it doesn't."""
        found = bars(node.gate)
        if any(bar.setting == OPERATOR for bar in found):
            if self._running.pop(node.gate, None) is not None:
                self._of[node.gate].forget()
            return None
        excess = {bar.setting: bar.excess for bar in found}
        return self._said(node.gate, excess, {COUNT: node.rate_out, SIZE: node.rate_out * node.mean_bytes()})

    def of_budget(self, gate: Gate) -> float | None:
        """Seconds until a budget over all nodes has room again."""
        excess = {SIZE: max(gate.depth_bytes - gate.resume_bytes + 1, 0)}
        rate = sum(node.rate_out * node.mean_bytes() for node in self._engine.topology.every_node())
        return self._said(gate, excess, {SIZE: rate})

    def error_of(self, gate: Gate) -> float | None:
        """How far its forecasts were off lately, as a part of what came true; None if none was compared."""
        forecast = self._of.get(gate)
        return None if forecast is None else forecast.error

    def _said(self, gate: Gate, excess: dict[str, int], rates: dict[str, float]) -> float | None:
        self._running.setdefault(gate, gate.closed_count)
        forecast = self._of.setdefault(gate, Forecast())
        return forecast.say(excess, rates, _terms(gate), self._engine.turn.now_ns)

    def _opened(self, gate: Gate) -> None:
        """It is open, or was and has closed again."""
        count = self._running.get(gate)
        if count is None or (gate.closed and gate.closed_count == count):
            return
        del self._running[gate]
        at_ns = gate.closed_since_ns if gate.closed else self._engine.turn.now_ns
        self._of[gate].opened(_terms(gate), at_ns)

    def _budgets(self) -> tuple[Gate, ...]:
        return self._engine.depths.memory, self._engine.depths.disk, self._engine.depths.temp


def _terms(gate: Gate) -> tuple[object, ...]:
    return gate.stop_msgs, gate.resume_msgs, gate.stop_bytes, gate.resume_bytes, gate.enforced
