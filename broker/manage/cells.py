"""The operators' verbs about several cells: have a queue belong to another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from broker.errors import NotFoundError

# How long a move waits for what consumers hold unless somebody says otherwise; then they are disconnected.
WAIT_MS = 10_000
LONGEST_WAIT_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class NodeMove:
    """A node on its way to another cell. ``state`` is `waiting`, `copying`, `deciding`, `moved` or `refused`,
    the last with its ``reason``; ``messages`` is how many have been copied.
    """

    name: str
    cell: int
    state: str
    messages: int = 0
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return self.state in ("moved", "refused")


class NodeMover(Protocol):
    """Moves nodes between cells."""

    def begin(self, name: str, cell: int, wait_ms: int) -> NodeMove:
        """Begin a move; OperatorError where it can't be done."""
        ...

    def status(self, name: str) -> NodeMove:
        """Return the last move of a node; NotFoundError where there was none."""
        ...


class CellOperations:
    """The verbs about cells; ``mover`` is set where the broker is one of several cells."""

    def __init__(self) -> None:
        self.mover: NodeMover | None = None

    def move(self, name: str, cell: int, wait_ms: int = WAIT_MS) -> NodeMove:
        """Begin to move a node to another cell. It is stopped until it is there; consumers have ``wait_ms``
        to settle what they hold.

        NotFoundError where there is one cell, or no such node; OperatorError where it can't be moved.
        """
        return self._mover().begin(name, cell, wait_ms)

    def moved(self, name: str) -> NodeMove:
        """Return how far the last move of a node from this cell has come; NotFoundError if there was none."""
        return self._mover().status(name)

    def _mover(self) -> NodeMover:
        if self.mover is None:
            raise NotFoundError("this broker has one cell: see serve --cells")
        return self.mover
