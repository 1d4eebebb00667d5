"""Where a query stands, as its checkpoint says it.

Of a queue it is how many messages were taken, all runs together. A stream's would be a place in it to read on
from, under a key of its own: neither kind is ever read as the other.
"""

from __future__ import annotations

QUEUE = "queue"


def position(taken: int) -> dict[str, int]:
    """Behind so many messages of a queue."""
    return {QUEUE: taken}


def counted(found: dict[str, int]) -> int:
    """How many that is. ValueError for a position of another kind."""
    if not isinstance(found.get(QUEUE), int):
        raise ValueError(f"the checkpoint's position {found!r} is not one of a queue")
    return found[QUEUE]
