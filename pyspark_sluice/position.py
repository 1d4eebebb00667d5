"""Where a query stands, as its checkpoint says it.

Of a queue it is how many messages were taken, all runs together; of a stream, for each partition, the
offset to read on from, and which stream the partition was, as the broker's attribute ``stream_id`` says it:
``{"0": 17, "stream_id": {"0": 1764222747001}}``. Positions of earlier versions, and those of a broker without
the attribute, have offsets alone. Neither kind is ever read as the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUEUE = "queue"
STREAM_ID = "stream_id"

# As JSON.
Position = dict[str, Any]


def position(taken: int) -> dict[str, int]:
    """Behind so many messages of a queue."""
    return {QUEUE: taken}


def counted(found: dict[str, int]) -> int:
    """How many that is. ValueError for a position of another kind."""
    if not isinstance(found.get(QUEUE), int):
        raise ValueError(f"the checkpoint's position {found!r} is not one of a queue")
    return found[QUEUE]


def is_of_queue(found: Mapping[str, Any]) -> bool:
    """Whether it is a queue's."""
    return QUEUE in found


def stream_position(offsets: Mapping[int, int], ids: Mapping[int, int] | None = None) -> Position:
    """Before these offsets, by partition; ``ids`` says which streams those are, as far as it is known."""
    found: Position = {str(partition): offsets[partition] for partition in sorted(offsets)}
    known = {str(each): ids[each] for each in sorted(offsets) if each in ids} if ids else {}
    return found | {STREAM_ID: known} if known else found


def offsets_of(found: Mapping[str, Any]) -> dict[int, int]:
    """The offsets by partition. ValueError for a position of another kind."""
    try:
        return {int(each): int(offset) for each, offset in found.items() if each != STREAM_ID}
    except (TypeError, ValueError):
        raise ValueError(f"the checkpoint's position {dict(found)!r} is not one of a stream") from None


def ids_of(found: Mapping[str, Any]) -> dict[int, int]:
    """Which stream each partition was, of those of which it is known. ValueError where that can't be read."""
    try:
        return {int(each): int(known) for each, known in found.get(STREAM_ID, {}).items()}
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"the checkpoint's position {dict(found)!r} is not one of a stream") from None


def remade(ids: Mapping[int, int], now: Mapping[int, int]) -> set[int]:
    """Return the partitions that are other streams now; one that isn't known on both sides is the same."""
    return {each for each in ids.keys() & now.keys() if ids[each] != now[each]}
