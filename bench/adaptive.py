"""Is a window that finds its size by itself as fast as the best one that somebody chose?

One producer keeps a backlog; one consumer takes what it can, at round trips of 0, 1, 10 and 50 ms (a
proxy of its own delays what goes between consumer and broker, bench.delay; at 0 there is none). Its
window is one of ``STATIC``, or ``dispatch: adaptive`` with the largest of them as its limit: it is told
no round trip. The windows take turns in short slices, so that a machine with other work to do slows all
of them. Last, what a consumer of 2,000/s is left holding in a window of 1000 and in an adaptive one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from statistics import median
from urllib.parse import urlsplit

from bench.clients import beside
from bench.contenders import BenchError, Running
from bench.delay import delayed
from bench.measuring import BODY, Figures, Pace, number
from broker.cli.terminal.ask import rows
from broker.cli.verbs.bench import measure
from broker.client.request import Management

TRIPS_MS = (0, 1, 10, 50)
STATIC = (10, 50, 100, 500, 1000, 5000)
ADAPTIVE = "adaptive"
CREDIT = 20_000  # of the client: never what limits
SLICES = 5
SLOW_RATE = 2000.0
SLOW_LOOKS = 20


def scenario(running: Running, pace: Pace) -> Figures:
    """``trip_N_part``: adaptive's throughput over the best static window's at that round trip."""
    figures: Figures = {}
    for trip_ms in TRIPS_MS:
        rates = _rates(running, pace, trip_ms)
        best = max(STATIC, key=lambda window: rates[str(window)])
        shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
        print(f"  {trip_ms} ms: {shown} msg/s; best static {best}", file=sys.stderr)
        figures |= {f"trip_{trip_ms}_{name}": rate for name, rate in rates.items()}
        figures[f"trip_{trip_ms}_part"] = rates[ADAPTIVE] / rates[str(best)]
    return figures | _held(running)


def _rates(running: Running, pace: Pace, trip_ms: int) -> Mapping[str, float]:
    names = [*(str(window) for window in STATIC), ADAPTIVE]
    port = urlsplit(running.url).port
    assert port is not None
    found: dict[str, list[float]] = {name: [] for name in names}
    with delayed(port, trip_ms / 2) if trip_ms else nullcontext(port) as entrance:
        for turn in range(SLICES):
            # Another one begins each time: what comes first finds the machine as nobody else does.
            for name in names[turn:] + names[:turn]:
                found[name].append(_rate(running, pace, f"amqp://127.0.0.1:{entrance}", f"window.{name}"))
    return {name: median(rates) for name, rates in found.items()}


def _rate(running: Running, pace: Pace, url: str, address: str) -> float:
    consumer = {
        "url": url,
        "address": address,
        "body": BODY,
        "senders": 0,
        "credit": CREDIT,
        "seconds": pace.seconds / 4,
        "warmup": pace.warmup,
    }
    producer = {
        "url": running.url,
        "address": address,
        "body": BODY,
        "receivers": 0,
        "seconds": pace.seconds / 4 + pace.warmup + 1.0,
        "warmup": 0,
        "stall": 1000,
    }
    with ThreadPoolExecutor(1) as thread:
        producing = thread.submit(measure, producer)
        rate = number(measure(consumer)["out_s"])
        producing.result()
    if rate == 0:
        raise BenchError(f"nothing came from {address}")
    return rate


def _held(running: Running) -> Figures:
    """Unsettled messages on the link of a slow consumer with a backlog, on average."""
    return {
        "slow_1000_held": _held_of(running, "window.1000"),
        "slow_adaptive_held": _held_of(running, f"window.{ADAPTIVE}"),
    }


def _held_of(running: Running, address: str) -> float:
    with beside("taker", running.url, address, str(SLOW_RATE)), Management(running.url) as management:
        held = []
        for _ in range(SLOW_LOOKS):
            time.sleep(0.1)
            found = rows(management, "link", ["role", "node", "unsettled"])
            held += [
                number(row["unsettled"])
                for row in found
                if row["node"] == address and row["role"] == "consumer"
            ]
    return median(held[len(held) // 2 :])
