"""The `events` and `metrics` sections of the broker's file: what is recorded and counted of its own work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from broker.config.fields import Count, Duration, Flag, PathType, Size, row
from broker.units import MB


@dataclass(frozen=True, slots=True)
class Events:
    """The history of flow: whether there is one, and the file it is written to.

    A ``file`` that is no absolute path is in the data directory.
    """

    enabled: bool = row(Flag(), True, "false: no events, no file and no topic of them")
    file: Path = row(
        PathType(), Path("events.jsonl"), "Where events are written, seen from the data directory"
    )
    max_size: int = row(Size(4096), 64 * MB, "A file that is larger makes room for a new one")
    keep: int = row(Count(0, 1000), 4, "Older files that are kept")
    sample_interval_ms: int = row(Duration(100), 1000, "How often nodes whose numbers changed are sampled")


@dataclass(frozen=True, slots=True)
class Metrics:
    """Kinds that have series of their own beside queues, topics and the broker; there may be many."""

    per_subscription: bool = row(Flag(), False, "Series of every single subscription of a topic")
    per_link: bool = row(Flag(), False, "Series of every single producer and consumer link")
