"""Where a query stands, as its checkpoint says it.

Of a queue it is how many messages were taken, all runs together; of a stream, for each partition, the
offset to read on from. Neither kind is ever read as the other.
"""

from __future__ import annotations

from collections.abc import Mapping

QUEUE = "queue"


def position(taken: int) -> dict[str, int]:
    """Behind so many messages of a queue."""
    return {QUEUE: taken}


def counted(found: dict[str, int]) -> int:
    """How many that is. ValueError for a position of another kind."""
    if not isinstance(found.get(QUEUE), int):
        raise ValueError(f"the checkpoint's position {found!r} is not one of a queue")
    return found[QUEUE]


def is_of_queue(found: Mapping[str, int]) -> bool:
    """Whether it is a queue's."""
    return QUEUE in found


def stream_position(offsets: Mapping[int, int]) -> dict[str, int]:
    """Before these offsets, by partition."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def offsets_of(found: Mapping[str, int]) -> dict[int, int]:
    """The offsets by partition. ValueError for a position of another kind."""
    try:
        return {int(partition): int(offset) for partition, offset in found.items()}
    except ValueError:
        raise ValueError(f"the checkpoint's position {dict(found)!r} is not one of a stream") from None
