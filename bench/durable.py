"""What durability costs, and what a backlog that doesn't fit in memory does.

Every group is synced, so the disk sets the pace; beside each figure stands a bare loop on the same
disk in the same run, which writes and syncs the same bytes in the same groups and does nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench import barelog
from bench.contenders import Running
from bench.measuring import Figures, Pace, Scenario, load, number
from broker.client.load.load import Usage
from broker.client.request import Management


@dataclass(frozen=True, slots=True)
class Written:
    """What the store wrote during a run, by its own count."""

    syncs: float
    sync_s: float
    nbytes: float

    def __sub__(self, other: Written) -> Written:
        return Written(self.syncs - other.syncs, self.sync_s - other.sync_s, self.nbytes - other.nbytes)

    @classmethod
    def of(cls, running: Running) -> Written:
        """All of it so far."""
        with Management(running.url) as management:
            found = management.call("READ", "org.sluice.broker", "sluice").body
        assert isinstance(found, dict)
        return cls(*(number(found[name]) for name in ("syncs", "sync_seconds", "written_bytes")))

    @property
    def mean_s(self) -> float:
        """Of one write and its sync. Slow ones run beside each other: their sum may exceed what passed."""
        return self.sync_s / self.syncs

    def bare(self, running: Running) -> barelog.Bare:
        """The same bytes a sync, written bare on the same disk."""
        return barelog.beside(running.directory, round(self.nbytes / self.syncs))


def throughput(**job: object) -> Scenario:
    """Durable messages end to end."""

    def scenario(running: Running, pace: Pace) -> Figures:
        result, written = _loaded(running, pace, job)
        group, bare = number(result["sent"]) / written.syncs, written.bare(running)
        return {
            "rate": number(result["out_s"]),
            "cpu_us": number(result["broker_cpu_us"]),
            "group": group,
            "sync_ms": written.mean_s * 1e3,
            "bare_ms": bare.growing_s * 1e3,
            "filled_ms": bare.filled_s * 1e3,
            "bare_rate": group / bare.growing_s,
            "filled_rate": group / bare.filled_s,
        }

    return scenario


def _loaded(running: Running, pace: Pace, job: dict[str, object]) -> tuple[Mapping[str, object], Written]:
    before = Written.of(running)
    result = load(running, pace, **({"address": "durable", "durable": True} | job))
    return result, Written.of(running) - before


def latency(running: Running, pace: Pace) -> Figures:
    """From send to outcome at 2,000 durable messages a second, beside what a sync takes meanwhile."""
    result, written = _loaded(running, pace, {"rate": 2000})
    ack, sync_us, bare = result["ack_us"], written.mean_s * 1e6, written.bare(running)
    assert isinstance(ack, dict)
    return {
        "p50_us": ack["p50"],
        "p99_us": ack["p99"],
        "sync_us": sync_us,
        "over_us": ack["p50"] - sync_us,
        "bare_us": bare.filled_s * 1e6,
        "bare_p99_us": bare.filled_p99_s * 1e6,
    }


def paged(running: Running, pace: Pace) -> Figures:
    """Fill a queue far beyond its memory_limit and drain it; then the same with a backlog that fits.

    The paged one comes first, so that the peak is its own.
    """
    fill, drain = _fill_and_drain(running, pace, "paged", pace.paged)
    usage = Usage.of(running.pid)
    assert usage is not None
    memory_fill, memory_drain = _fill_and_drain(running, pace, "backlog", pace.backlog)
    return {
        "fill": fill,
        "drain": drain,
        "memory_fill": memory_fill,
        "memory_drain": memory_drain,
        "peak_mb": usage.peak_rss_bytes / (1 << 20),
    }


def _fill_and_drain(running: Running, pace: Pace, address: str, count: int) -> tuple[float, float]:
    """Messages a second in and out; all of them, in order."""
    whole = replace(pace, warmup=0.0)
    filled = load(running, whole, address=address, receivers=0, count=count)
    drained = load(running, whole, address=address, senders=0, count=count)
    return number(filled["in_s"]), number(drained["out_s"])
