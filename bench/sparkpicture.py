"""``python -m bench.sparkpicture`` draws docs/spark.md's picture, ``docs/images/spark-backpressure.svg``.

A recording of a real run. A producer that never pauses and a query that is slow, then faster, then slow
again; every few milliseconds the broker says how deep the queue is and what came and went.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, cast

from bench.contenders import OURS
from bench.pictures import BLUE, FAINT, GREEN, IMAGES, INK, RED, SHUT, _line, _svg, _text
from bench.sparksource import encoded, session
from broker.client.errors import ClientTimeoutError
from broker.client.link import Connection
from broker.client.request import Management

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME, ADDRESS = "spark-backpressure", "readings"
STOP, RESUME, ROWS = 4000, 2600, 500
# Seconds the query takes over a batch, besides Spark's own, and for how long.
PHASES = ((1.0, 16.0), (0.0, 14.0), (1.0, 16.0))
EVERY_S, WINDOW_S = 0.02, 5.0
WIDTH, LEFT, RIGHT = 720, 64, 704
DEPTH, RATES = (46, 210), (262, 400)
ORANGE = "#c77700"


@dataclass(frozen=True, slots=True)
class Look:
    """The queue at a moment; ``came`` and ``went`` count messages since the beginning."""

    seconds: float
    depth: int
    stopped: bool
    came: int
    went: int


@contextmanager
def producing(url: str) -> Iterator[None]:
    """A producer that sends whenever it may."""
    done = threading.Event()

    def produce() -> None:
        message = encoded(1)
        with Connection(url) as connection:
            sender = connection.sender(ADDRESS)
            while not done.is_set():
                try:
                    sender.send(message, 0.2)
                except ClientTimeoutError:
                    continue

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def slow_query(spark: SparkSession, url: str, folder: str, pause_s: Callable[[], float]) -> StreamingQuery:
    """It takes ``ROWS`` at a time and its time over them."""

    def take(frame: DataFrame, number: int) -> None:
        frame.count()
        time.sleep(pause_s())

    reader = spark.readStream.format("amqp").option("url", url).option("address", ADDRESS)
    stream = reader.option("maxRowsPerTrigger", str(ROWS)).load().select("message_id")
    return stream.writeStream.foreachBatch(take).option("checkpointLocation", folder).start()


def record(url: str) -> list[Look]:
    """From when the query has warmed up until the last phase is over."""
    spark = session()
    began: list[float] = []

    def pause_s() -> float:
        at = time.monotonic() - began[0] if began else 0.0
        for pause, seconds in PHASES:
            at -= seconds
            if at < 0:
                return pause
        return 0.0

    with Management(url) as management, producing(url), tempfile.TemporaryDirectory() as folder:
        limits = {"flow_stop_count": STOP, "flow_resume_count": RESUME}
        management.call("UPDATE", type="org.sluice.queue", name=ADDRESS, attributes=limits)
        query = slow_query(spark, url, folder, pause_s)
        while len(query.recentProgress) < 3:
            time.sleep(0.1)
        began.append(time.monotonic())
        end = began[0] + sum(seconds for _, seconds in PHASES)
        looks = []
        while (now := time.monotonic()) < end:
            found = management.call("READ", type="org.sluice.queue", name=ADDRESS).body
            seen = cast("dict[str, int]", found)
            depth, came = seen["depth_msgs"], seen["received"]
            looks.append(Look(now - began[0], depth, bool(seen["flowStopped"]), came, came - depth))
            time.sleep(EVERY_S)
        query.stop()
    spark.stop()
    return looks


def drawn(looks: Sequence[Look]) -> str:
    """Two panels over one time: the depth with its two lines, and the two rates."""
    end = looks[-1].seconds

    def x(seconds: float) -> float:
        return LEFT + seconds / end * (RIGHT - LEFT)

    return _svg(
        WIDTH,
        RATES[1] + 34,
        [*_depth(looks, x), *_rates(looks, x), *_times(end, x)],
        "A slow query fills its queue to the stop line, and the producers' rate becomes the query's",
    )


def _depth(looks: Sequence[Look], x: Callable[[float], float]) -> Iterator[str]:
    top, bottom = DEPTH
    most = STOP * 1.12

    def y(depth: float) -> float:
        return bottom - depth / most * (bottom - top)

    for stopped, some in groupby(looks, key=lambda look: look.stopped):
        span = list(some)
        if stopped:
            wide = x(span[-1].seconds) - x(span[0].seconds)
            at = f'x="{x(span[0].seconds):.1f}" y="{top}" width="{wide:.1f}" height="{bottom - top}"'
            yield f'<rect {at} fill="{SHUT}"/>'
    for name, value, colour in (("stop", STOP, RED), ("resume", RESUME, GREEN)):
        yield _line(LEFT, y(value), RIGHT, y(value), colour, dash="6 4")
        yield _text(LEFT - 6, y(value) + 4, f"{value:,}", "end", colour)
        yield _text(RIGHT, y(value) + (14 if name == "resume" else -5), f"flow_{name}_count", "end", colour)
    path = " ".join(f"{x(each.seconds):.1f},{y(each.depth):.1f}" for each in looks)
    yield f'<polyline points="{path}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>'
    yield from _axes(top, bottom)
    yield _text(LEFT, 22, "depth of the queue; shaded: its producers have no credit", "start", INK)


def _rates(looks: Sequence[Look], x: Callable[[float], float]) -> Iterator[str]:
    top, bottom = RATES
    lines = (
        ("producers", ORANGE, _slope(looks, lambda look: look.came)),
        ("query", BLUE, _slope(looks, lambda look: look.went)),
    )
    most = max(rate for _, _, points in lines for _, rate in points) * 1.15

    def y(rate: float) -> float:
        return bottom - rate / most * (bottom - top)

    for number, (name, colour, points) in enumerate(lines):
        path = " ".join(f"{x(at):.1f},{y(rate):.1f}" for at, rate in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield _text(RIGHT - 70 * (1 - number), top - 8, name, "end", colour)
    yield from _axes(top, bottom)
    for rate in range(500, int(most), 500):
        yield _text(LEFT - 6, y(rate) + 4, f"{rate:,}", "end", FAINT)
        yield _line(LEFT, y(rate), RIGHT, y(rate), FAINT, dash="1 5", width=0.5)
    yield _text(LEFT, top - 8, f"messages a second, over {WINDOW_S:g} s", "start", INK)


def _slope(looks: Sequence[Look], count: Callable[[Look], int]) -> list[tuple[float, float]]:
    """How fast a count rises, over the seconds before each moment."""
    found, first = [], 0
    for look in looks:
        while look.seconds - looks[first].seconds > WINDOW_S:
            first += 1
        seconds = look.seconds - looks[first].seconds
        if seconds > WINDOW_S * 0.8:
            found.append((look.seconds, (count(look) - count(looks[first])) / seconds))
    return found


def _axes(top: float, bottom: float) -> Iterator[str]:
    yield _line(LEFT, bottom, RIGHT, bottom, INK)
    yield _line(LEFT, top, LEFT, bottom, INK)
    yield _text(LEFT - 6, bottom + 4, "0", "end", FAINT)


def _times(end: float, x: Callable[[float], float]) -> Iterator[str]:
    at = 0.0
    for pause, seconds in PHASES:
        what = f"{pause:g} s over each batch" if pause else "no pause"
        yield _text(x(at + seconds / 2), DEPTH[1] + 18, what, "middle", FAINT)
        yield _line(x(at), DEPTH[0], x(at), RATES[1], FAINT, dash="2 4", width=1)
        at += seconds
    for second in range(0, int(end) + 1, 4):
        yield _text(x(second), RATES[1] + 18, f"{second} s", "middle", FAINT)


def main() -> None:
    """Record and draw."""
    with OURS.started() as broker:
        with Connection(broker.url) as connection:
            connection.sender(ADDRESS)
        looks = record(broker.url)
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / f"{NAME}.svg").write_text(drawn(looks))
    at = 0.0
    for pause, seconds in PHASES:
        part = [look for look in looks if at + WINDOW_S <= look.seconds < at + seconds]
        took = part[-1].seconds - part[0].seconds
        came, went = part[-1].came - part[0].came, part[-1].went - part[0].went
        print(f"{pause:g} s a batch: {came / took:,.0f} came and {went / took:,.0f} went a second")
        at += seconds
    print(f"{len(looks)} looks, deepest {max(look.depth for look in looks):,} of {STOP:,}")


if __name__ == "__main__":
    main()
