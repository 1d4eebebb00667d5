"""What keeps a gate shut: the units that have not drained below their resume threshold, or an operator."""

from __future__ import annotations

from dataclasses import dataclass

from broker.engine.node import Node
from broker.flow.gate import Gate

COUNT = "flow_stop_count"
SIZE = "flow_stop_size"
OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class GateCause:
    """One of the things that must go before the gate opens; an operator's has no numbers."""

    setting: str
    depth: int = 0
    stop: int = 0
    resume: int = 0

    @property
    def excess(self) -> int:
        """By how much depth must fall, in the setting's unit; 0 where any message that leaves is enough."""
        return max(self.depth - self.resume + 1, 0)


def budgets(node: Node) -> list[Gate]:
    """The gates above the node that its producers' credit reserves from too: memory, and what is on disk."""
    above: dict[int, Gate] = {}
    for owner in node.owners():
        reservations = owner.allocator.reservations
        found = [each.gate for each in reservations.disks]
        memory = () if reservations.memory is None else (reservations.memory.gate,)
        above |= {id(gate): gate for gate in (*found, *memory)}
    return list(above.values())


def bars(gate: Gate) -> tuple[GateCause, ...]:
    """All that keeps it shut, an operator's hold first; nothing for an open gate."""
    held = (GateCause(OPERATOR),) if gate.held else ()
    units: list[GateCause] = []
    by_size = GateCause(SIZE, gate.depth_bytes, gate.stop_bytes, gate.resume_bytes)
    if gate.full and gate.stop_msgs and gate.depth_msgs >= gate.resume_msgs:
        units.append(GateCause(COUNT, gate.depth_msgs, gate.stop_msgs, gate.resume_msgs))
    if gate.full and gate.stop_bytes and gate.depth_bytes >= gate.resume_bytes:
        units.append(by_size)
    if gate.full and not units:
        # Where both thresholds are one, a gate closes below them as soon as one more message doesn't fit.
        units.append(by_size)
    return (*held, *units)
