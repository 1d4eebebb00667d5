"""Loads that are made up: messages that come, and are taken, at random around a rate.

The same seed makes the same load.
"""

from __future__ import annotations

import random
from math import exp, sqrt

from broker.manage.advise.trace import SECOND_NS, Curve, Trace

BIN_NS = 1_000_000
MOST_BINS = 200_000
# Above this mean the normal distribution is near enough to Poisson's.
MANY = 50.0


def make(
    arrivals: tuple[float, int],
    settles: tuple[float, int],
    seconds: float,
    size: int,
    *,
    producers: int = 1,
    consumers: int = 1,
    seed: int = 0,
) -> Trace:
    """A load of ``seconds``; a rate is messages a second and how many come together."""
    duration_ns = round(seconds * SECOND_NS)
    source = random.Random(seed)  # noqa: S311 - a load, no secret
    offered = _poisson(source, *arrivals, duration_ns)
    served = _poisson(source, *settles, duration_ns)
    peak = max(4 * arrivals[0], 2 * settles[0])
    return Trace(
        "synthetic",
        duration_ns,
        offered,
        served,
        peak,
        ((0, size),),
        producers=producers,
        consumers=consumers,
    )


def _poisson(source: random.Random, rate: float, burst: int, duration_ns: int) -> Curve:
    """Bursts that come independently of each other, ``rate`` messages a second in all."""
    width_ns = max(BIN_NS, -(-duration_ns // MOST_BINS))
    mean = rate / burst * width_ns / SECOND_NS
    knots, total = [(0, 0.0)], 0.0
    for begin_ns in range(0, duration_ns, width_ns):
        end_ns = min(begin_ns + width_ns, duration_ns)
        bursts = _count(source, mean * (end_ns - begin_ns) / width_ns)
        if bursts and burst > 1:
            total += bursts * burst
            knots += [(begin_ns, knots[-1][1]), (begin_ns, total)]
        elif bursts:
            total += bursts
            knots += [(begin_ns, knots[-1][1]), (end_ns, total)]
    return Curve([*knots, (duration_ns, total)])


def _count(source: random.Random, mean: float) -> int:
    if mean > MANY:
        return max(round(source.gauss(mean, sqrt(mean))), 0)
    count, product, bound = 0, source.random(), exp(-mean)
    while product > bound:
        count += 1
        product *= source.random()
    return count
