"""The number of cells: broker processes that share one machine, its ports and a data directory."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.fields import Schema
from broker.units import show

AUTO = "auto"
MOST_CELLS = 64


@dataclass(frozen=True, slots=True)
class CellCountType:
    """A number of cells, or 0 for `auto`: as many as the process may use processors."""

    label = "number or auto"

    def parse(self, value: object) -> int:
        """Read a number from 1 on, or `auto`. ValueError for anything else."""
        if value == AUTO:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CELLS:
            raise ValueError(f"expected a number from 1 to {MOST_CELLS}, or {AUTO}, not {show(value)}")
        return value

    def schema(self) -> Schema:
        """Return its JSON Schema."""
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_CELLS}, {"const": AUTO}]}
