"""Forecasts for every stopped gate of a broker: made once a second and whenever somebody asks why."""

from __future__ import annotations

from itertools import islice

from broker.engine import Engine
from broker.flow.forecast import Forecast
from broker.flow.gate import Gate
from broker.manage.bars import COUNT, OPERATOR, SIZE, bars
from broker.node import Node

# Gates that are looked at once a second; the forecasts of others are compared where somebody asks.
MOST_AT_ONCE = 2000


class Forecasts:
    """By gate. A gate that was never forecast has none; one of a node that is gone is forgotten."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._of: dict[Gate, Forecast] = {}
        self._running: set[Gate] = set()
        self._stopped: set[Node] = set()

    def changed(self, node: Node) -> None:
        """A gate opened or closed, or a link came or went."""
        gate = node.gate
        if node.deleted:
            self._stopped.discard(node)
            self._running.discard(gate)
            self._of.pop(gate, None)
        elif gate.closed:
            self._stopped.add(node)
        else:
            self._stopped.discard(node)
            self._opened(gate)

    def sample(self) -> None:
        """Once a second: a forecast for each gate that is stopped, to be compared when it opens."""
        for node in islice(self._stopped, MOST_AT_ONCE):
            self.of_node(node)
        for gate in self._budgets():
            if gate.closed and not gate.held:
                self.of_budget(gate)
            else:
                self._opened(gate)

    def of_node(self, node: Node) -> float | None:
        """Seconds until its gate opens, its thresholds and drain being what they are; None if it doesn't."""
        found = bars(node.gate)
        if any(bar.setting == OPERATOR for bar in found):
            if node.gate in self._running:
                self._of[node.gate].forget()
                self._running.discard(node.gate)
            return None
        excess = {bar.setting: bar.excess for bar in found}
        return self._said(node.gate, excess, {COUNT: node.rate_out, SIZE: node.rate_out * node.mean_bytes()})

    def of_budget(self, gate: Gate) -> float | None:
        """Seconds until a budget over all nodes has room again."""
        excess = {SIZE: max(gate.depth_bytes - gate.resume_bytes + 1, 0)}
        rate = sum(node.rate_out * node.mean_bytes() for node in self._engine.every_node())
        return self._said(gate, excess, {SIZE: rate})

    def error_of(self, gate: Gate) -> float | None:
        """How far its forecasts were off lately, as a part of what came true; None if none was compared."""
        forecast = self._of.get(gate)
        return None if forecast is None else forecast.error

    def _said(self, gate: Gate, excess: dict[str, int], rates: dict[str, float]) -> float | None:
        self._running.add(gate)
        forecast = self._of.setdefault(gate, Forecast())
        return forecast.say(excess, rates, _terms(gate), self._engine.now_ns)

    def _opened(self, gate: Gate) -> None:
        if gate in self._running:
            self._running.discard(gate)
            self._of[gate].opened(_terms(gate), self._engine.now_ns)

    def _budgets(self) -> tuple[Gate, ...]:
        return self._engine.memory, self._engine.disk, self._engine.temp


def _terms(gate: Gate) -> tuple[object, ...]:
    return gate.stop_msgs, gate.resume_msgs, gate.stop_bytes, gate.resume_bytes, gate.enforced
