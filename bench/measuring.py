"""What every scenario is made of: the pace, one load run that counts only if nothing went wrong, figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.contenders import BenchError, Running
from broker.cli.verbs.bench import measure

Figures = dict[str, float]

BODY = 100


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to measure, and how much to pile up: in memory (``backlog``) and with paging (``paged``)."""

    seconds: float
    warmup: float
    backlog: int
    connections: int
    paged: int


Scenario = Callable[[Running, Pace], Figures]


def load(running: Running, pace: Pace, **job: object) -> Mapping[str, object]:
    """The result of one job of the load generator; BenchError if anything was lost, doubled or refused."""
    given = {
        "url": running.url,
        "pid": running.pid,
        "seconds": pace.seconds,
        "warmup": pace.warmup,
        "body": BODY,
    }
    result = measure(given | job)
    wrong = {name: result[name] for name in ("lost", "duplicated", "unordered", "refused") if result[name]}
    if wrong or result["stalled"]:
        raise BenchError(f"the run is void: {wrong or 'nothing moved'}")
    return result


def number(value: object) -> float:
    """A figure of a result."""
    assert isinstance(value, int | float)
    return float(value)
