"""What flow control costs those it doesn't mean to stop.

Two questions. Does one busy producer at `flow_stop_count` 1000 go as fast beside 999 idle ones as
alone, whether the idle ones' clients read what the broker tells them or sleep? And Qpid's example, a
stop of 100 and two producers whose clients have windows of 50 and 15: is either slower than without it?
Without a stop a backlog has no bound, so the second is asked with a consumer of 20,000/s and producers
that together want less, then with producers that want all they can get, and with a free consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median

from bench.clients import beside
from bench.contenders import Running
from bench.measuring import BODY, Figures, Pace, load, number
from broker.cli.verbs.bench import measure
from broker.client.request import Management

IDLE_LINKS = 999
SLICES = 5
WINDOWS = (50, 15)
CONSUMER_RATE = 20_000.0
PRODUCER_RATE = 9_000.0
FREE_TAIL_S = 2.0  # the free consumer stays longer than the producers


def scenario(running: Running, pace: Pace) -> Figures:
    """Both questions' figures; every ``_part`` is a share of the same load without what is in the way."""
    return _idle(running, pace) | _two(running, replace(pace, seconds=pace.seconds / 2, warmup=1))


def _idle(running: Running, pace: Pace) -> Figures:
    # In short slices by turns, each judged by its neighbour: a machine with other work to do changes
    # its speed from one second to the next.
    short = replace(pace, seconds=pace.seconds / 4, warmup=0.5)
    url, count = running.url, str(IDLE_LINKS)
    # Few connections where they are looked after; one each where they sleep, as blocking clients have.
    with (
        beside("idle", url, "flow.thousand.awake", count, "9", "awake"),
        beside("idle", url, "flow.thousand.asleep", count, count, "asleep"),
    ):
        slices = [
            [_busy(running, short, f"flow.thousand.{kind}") for kind in ("alone", "awake", "asleep")]
            for _ in range(SLICES)
        ]
    return {
        "alone": median(alone for alone, _, _ in slices),
        "awake_part": median(awake / alone for alone, awake, _ in slices),
        "asleep_part": median(asleep / alone for alone, _, asleep in slices),
    }


def _busy(running: Running, pace: Pace, address: str) -> float:
    return number(load(running, pace, address=address, max_backlog=0)["out_s"])


def _two(running: Running, pace: Pace) -> Figures:
    figures: Figures = {}
    for case, consumer, producer in (("paced", CONSUMER_RATE, PRODUCER_RATE), ("free", 0.0, 0.0)):
        without = _rates(running, pace, f"flow.none.{case}", consumer, producer)
        ruled = _rates(running, pace, f"flow.hundred.{case}", consumer, producer)
        for window, rate, reference in zip(WINDOWS, ruled, without, strict=True):
            figures[f"{case}_{window}_part"] = rate / reference
    slow = _rates(running, pace, "flow.hundred.slow", CONSUMER_RATE, 0.0)
    figures |= {"slow_part": sum(slow) / CONSUMER_RATE, "slow_even": min(slow) / max(slow)}
    cases = ("paced", "free", "slow")
    return figures | {"peak": max(_peak(running, f"flow.hundred.{case}") for case in cases)}


def _rates(
    running: Running, pace: Pace, address: str, consumer_rate: float, producer_rate: float
) -> Sequence[float]:
    """Messages accepted a second from each of the two producers; a rate of 0 is as fast as it can."""
    if consumer_rate:
        with beside("taker", running.url, address, str(consumer_rate)):
            return _produced(running, pace, address, producer_rate)
    job = {"url": running.url, "address": address, "senders": 0, "body": BODY, "stall": 1000}
    seconds = pace.warmup + pace.seconds + FREE_TAIL_S
    with ThreadPoolExecutor(1) as thread:
        draining = thread.submit(measure, job | {"seconds": seconds, "warmup": 0})
        rates = _produced(running, pace, address, producer_rate)
        draining.result()
    return rates


def _produced(running: Running, pace: Pace, address: str, rate: float) -> Sequence[float]:
    def produce(window: int) -> float:
        job = {"senders": 1, "receivers": 0, "window": window, "rate": rate, "address": address}
        return number(load(running, pace, **job)["in_s"])

    with ThreadPoolExecutor(len(WINDOWS)) as threads:
        return list(threads.map(produce, WINDOWS))


def _peak(running: Running, address: str) -> float:
    with Management(running.url) as management:
        found = management.call("READ", "org.sluice.queue", address).body
    assert isinstance(found, dict)
    return number(found["peak_msgs"])
