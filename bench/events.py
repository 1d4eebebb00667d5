"""What the history of flow costs messages: the same load on a broker that keeps it and on one that doesn't.

Both run at once and are loaded by turns, in short slices each judged by its neighbour. The plain load makes
a sample a second; the other goes through a queue whose gate stops and opens hundreds of times a second,
and has a subscriber of the topic beside it.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from bench.clients import beside
from bench.contenders import SILENT, Running
from bench.measuring import Figures, Pace, load, number

SLICES = 8


def scenario(running: Running, pace: Pace) -> Figures:
    """Every ``_part`` is a share of the same load without events."""
    short = replace(pace, seconds=pace.seconds / 4, warmup=0.5)
    with SILENT.started() as silent:
        plain = [_pair(running, silent, short, number_, "events.plain") for number_ in range(SLICES)]
        with beside("listener", running.url):
            gate = [
                _pair(running, silent, short, number_, "flow.hundred.events") for number_ in range(SLICES)
            ]
    return {
        "plain": median(rate for (rate, _), _ in plain),
        "plain_part": median(on / off for (on, _), (off, _) in plain),
        "plain_cpu_part": median(on / off for (_, on), (_, off) in plain),
        "gate_part": median(on / off for (on, _), (off, _) in gate),
    }


def _pair(
    running: Running, silent: Running, pace: Pace, slice_: int, address: str
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Messages a second and processor per message, with events and without; who is first changes."""
    turns = (running, silent) if slice_ % 2 else (silent, running)
    found = {each.pid: _once(each, pace, address) for each in turns}
    return found[running.pid], found[silent.pid]


def _once(running: Running, pace: Pace, address: str) -> tuple[float, float]:
    result = load(running, pace, address=address)
    return number(result["out_s"]), number(result["broker_cpu_us"])
