"""A load: what producers want to send and what consumers can take, over time, whatever the thresholds.

Both are cumulative curves in messages, straight between their knots. Plain values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

SECOND_NS = 1_000_000_000


class Curve:
    """A cumulative count over time; knots in order of time, counts that never fall.

    Two knots at one time are a step. Before the first it is 0, after the last it stays.
    """

    __slots__ = ("counts", "times")

    def __init__(self, knots: Sequence[tuple[int, float]]) -> None:
        self.times = [at_ns for at_ns, _ in knots]
        self.counts = [count for _, count in knots]

    def at(self, at_ns: int) -> float:
        """How many until then, a step at that time included."""
        i = bisect_right(self.times, at_ns)
        if i == 0:
            return 0.0
        if i == len(self.times):
            return self.counts[-1]
        begin_ns, before = self.times[i - 1], self.counts[i - 1]
        part = (at_ns - begin_ns) / (self.times[i] - begin_ns)
        return before + (self.counts[i] - before) * part

    @property
    def total(self) -> float:
        """All of it."""
        return self.counts[-1] if self.counts else 0.0

    def fastest(self) -> float:
        """The steepest straight part, a second; steps don't count."""
        slopes = (
            (self.counts[i] - self.counts[i - 1]) * SECOND_NS / (self.times[i] - self.times[i - 1])
            for i in range(1, len(self.times))
            if self.times[i] > self.times[i - 1]
        )
        return max(slopes, default=0.0)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Those a history was recorded under; 0 is none."""

    stop_msgs: int = 0
    resume_msgs: int = 0
    stop_bytes: int = 0
    resume_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """What really happened while a history was recorded."""

    stop_seconds: float
    stops: int
    settled: int
    worst_msgs: int
    worst_bytes: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A load of ``duration_ns``: ``offered`` by producers, ``served`` at most by consumers.

    ``peak`` is how fast producers send what they could not send before, in messages a second. ``sizes``
    are mean bytes a message from a time on. ``measured`` and ``thresholds`` are the recording's, None for
    a load that was made up. ``pressed``: producers were held at a threshold without a stop.
    """

    node: str
    duration_ns: int
    offered: Curve
    served: Curve
    peak: float
    sizes: tuple[tuple[int, int], ...]
    producers: int = 1
    consumers: int = 1
    begin_msgs: int = 0
    pressed: bool = False
    thresholds: Thresholds | None = None
    measured: Measured | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.duration_ns / SECOND_NS
