"""How cost grows with numbers: ``python -m bench.growth`` prints tables and draws ``docs/images/growth.svg``.

Processor time of the broker for a delivered message, and its memory, with more and more queues,
connections, producers behind one gate, subscribers of one topic and messages in a backlog. What moves
messages runs beside it in processes of their own, in Python: it is slower than the broker, which
therefore works in small batches here. Figures of one row are comparable with each other, not with those
of ``python -m bench``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.contenders import OURS, BenchError, Running
from bench.curves import Curve, draw
from bench.measuring import Pace, load
from broker.client.load.load import Usage
from broker.client.request import Management

PICTURE = Path("docs/images/growth.svg")
START_S = 300.0
SETTLE_S = 1.5
BODY = 100
CONNECTIONS = 100
CREDIT = 200


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: of so many of what grows, microseconds a delivered message and MiB in all."""

    count: int
    cpu_us: float
    rate: float
    rss_mib: float


@contextmanager
def crowd(module: str, *words: object) -> Iterator[None]:
    """Clients that run while the block does; started when every link is attached, for consumers."""
    command = [sys.executable, "-m", f"bench.{module}", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if module == "consumers" and process.stdout.readline() != "ready\n":
                raise BenchError(f"{module} did not start: {' '.join(map(str, words))}")
            yield
            if process.poll() is not None:
                raise BenchError(f"{module} ended by themselves: {' '.join(map(str, words))}")
        finally:
            process.terminate()


def window(running: Running, count: int, seconds: float) -> Point:
    """What the broker spends while clients are at work: waits until messages flow, then looks twice."""
    deadline = time.monotonic() + START_S
    first = accepted(running)
    while accepted(running) == first:
        if time.monotonic() > deadline:
            raise BenchError("nothing moved")
        time.sleep(0.1)
    time.sleep(SETTLE_S)
    before, usage, began = accepted(running), used(running), time.monotonic()
    time.sleep(seconds)
    moved, spent, took = accepted(running) - before, used(running), time.monotonic() - began
    if moved == 0:
        raise BenchError("nothing moved")
    cpu_s = spent.cpu_s - usage.cpu_s
    return Point(count, cpu_s / moved * 1e6, moved / took, spent.rss_bytes / (1 << 20))


def accepted(running: Running) -> int:
    """Deliveries consumers have accepted so far."""
    with Management(running.url, timeout_s=30.0) as management:
        found = management.call("READ", "org.sluice.broker").body
    assert isinstance(found, dict)
    return int(found["accepted"])


def used(running: Running) -> Usage:
    usage = Usage.of(running.pid)
    if usage is None:
        raise BenchError("the broker ended by itself")
    return usage


def queues(running: Running, count: int, seconds: float) -> Point:
    """A producer and a consumer each, over a hundred connections."""
    return _pairs(running, "growth.queue.%d", count, min(count, CONNECTIONS), seconds)


def connections(running: Running, count: int, seconds: float) -> Point:
    """Half of them with a producer and half with a consumer, on queues of their own."""
    return _pairs(running, "growth.pair.%d", max(count // 2, 1), max(count // 2, 1), seconds, count)


def _pairs(
    running: Running, address: str, links: int, over: int, seconds: float, count: int | None = None
) -> Point:
    with (
        crowd("consumers", running.url, address, links, over, CREDIT),
        crowd("producers", running.url, address, links, over, BODY, START_S),
    ):
        return window(running, links if count is None else count, seconds)


def producers(running: Running, count: int, seconds: float) -> Point:
    """All behind one gate, one consumer."""
    with (
        crowd("consumers", running.url, "growth.gate", 1, 1, 1000),
        crowd("producers", running.url, "growth.gate", count, min(count, CONNECTIONS), BODY, START_S),
    ):
        return window(running, count, seconds)


def subscribers(running: Running, count: int, seconds: float) -> Point:
    """Of one topic, which has one producer."""
    with (
        crowd("consumers", running.url, "growth.topic", count, min(count, CONNECTIONS), CREDIT),
        crowd("producers", running.url, "growth.topic", 1, 1, BODY, START_S),
    ):
        return window(running, count, seconds)


def backlog(running: Running, count: int, _: float) -> Point:
    """Messages put in and taken out again; memory with all of them there, time for both ways."""
    pace = Pace(seconds=600, warmup=0, backlog=0, connections=0, paged=0)
    usage, began = used(running), time.monotonic()
    load(running, pace, address="growth.backlog", receivers=0, count=count, max_backlog=0)
    full = used(running)
    load(running, pace, address="growth.backlog", senders=0, count=count, max_backlog=0)
    spent = used(running)
    rate = count / (time.monotonic() - began)
    return Point(count, (spent.cpu_s - usage.cpu_s) / count * 1e6, rate, full.rss_bytes / (1 << 20))


@dataclass(frozen=True, slots=True)
class Row:
    """What grows, how far, and how it is measured."""

    title: str
    measure: Callable[[Running, int, float], Point]
    counts: tuple[int, ...]


ROWS = {
    "queues": Row("queues", queues, (1, 100, 10_000)),
    "connections": Row("connections", connections, (2, 100, 5_000)),
    "producers": Row("producers behind one gate", producers, (1, 10, 100, 1_000)),
    "subscribers": Row("subscribers of one topic", subscribers, (1, 10, 100, 1_000)),
    "backlog": Row("messages in a backlog", backlog, (1_000, 100_000, 1_000_000, 10_000_000)),
}


def main() -> int:
    """Measures, prints and draws; 1 if anything could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (4)")
    parser.add_argument("--only", action="append", choices=ROWS)
    parser.add_argument("--most", type=int, default=0, help="leave out larger counts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-picture", action="store_true")
    args = parser.parse_args()
    found: dict[str, list[Point]] = {}
    failed = False
    for name in args.only or ROWS:
        for count in ROWS[name].counts:
            if args.most and count > args.most:
                continue
            try:
                with OURS.started() as running:
                    point = ROWS[name].measure(running, count, args.seconds)
            except BenchError as fault:
                print(f"{name} {count}: {fault}", file=sys.stderr)
                failed = True
                continue
            print(f"{name}: {point}", file=sys.stderr)
            found.setdefault(name, []).append(point)
    if args.json:
        print(json.dumps({name: [asdict(point) for point in points] for name, points in found.items()}))
    else:
        print(_markdown(found))
    if not args.no_picture:
        curves = [
            Curve(ROWS[name].title, [(point.count, point.cpu_us) for point in points])
            for name, points in found.items()
        ]
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_text(draw("Processor time of the broker per message, µs", curves))
    return 1 if failed else 0


def _markdown(found: dict[str, list[Point]]) -> str:
    lines = [
        "| of | how many | CPU µs/msg | of the least | msg/s | memory, MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, points in found.items():
        least = min(point.cpu_us for point in points)
        lines += [
            f"| {ROWS[name].title} | {point.count:,} | {point.cpu_us:.2f} | {point.cpu_us / least:.2f} |"
            f" {point.rate:,.0f} | {point.rss_mib:,.0f} |"
            for point in points
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
