"""A producer link that writes down what its credit asks of it."""

from __future__ import annotations

from broker.flow.allocator import CreditAllocator
from broker.flow.gate import Gate
from broker.flow.producer_credit import Port

MS = 1_000_000


class Link(Port):
    """Counts what it was granted; keeps what was admitted and refused."""

    def __init__(self) -> None:
        self.granted = 0
        self.revoked = 0
        self.admitted: list[object] = []
        self.refused: list[object] = []

    def grant(self, msgs: int) -> None:
        self.granted += msgs

    def revoke(self, msgs: int) -> None:
        self.revoked += msgs

    def admit(self, parked: object, size: int) -> None:
        self.admitted.append(parked)

    def refuse(self, parked: object) -> None:
        self.refused.append(parked)


def gate_of(name: str, stop_msgs: int = 0, stop_bytes: int = 0) -> Gate:
    gate = Gate(name)
    gate.configure(stop_msgs, 0, stop_bytes, 0, 0, 0)
    return gate


def allocator(stop_msgs: int = 0, stop_bytes: int = 0) -> CreditAllocator:
    return CreditAllocator(gate_of("orders", stop_msgs, stop_bytes))
