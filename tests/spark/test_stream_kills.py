"""A partitioned stream through Spark into four sinks, while broker, driver and workers are killed.

1. Writers number the messages of each group and keep books of what was accepted.
2. One program reads the stream into another partitioned stream, into a queue with a duplicate_window, into
   Parquet files and, by foreachBatch, into a folder for each batch (relaying.py).
3. Each kill comes while a batch is under way; the next one once every query has got on.
4. At the end each sink has every message of the input once, and in the input's order, a stream once repeats
   are left out as docs/spark.md tells consumers to.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Fault, ReturningBroker
from tests.spark.killing import (
    PARTITIONS,
    Driver,
    Row,
    Writer,
    check_input,
    has_read_all,
    input_of,
    messages_of,
    row_of,
)
from tests.spark.reading import messages
from tests.spark.relaying import SINKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLICIES = f"""policies:
  - {{match: "flights", kind: stream, partitions: {PARTITIONS}, durable: true}}
  - {{match: "to-stream", kind: stream, partitions: {PARTITIONS}, durable: true}}
  - match: "to-queue"
    durable: true
    duplicate_window: 100000
    flow_control: false
    max_size: 1GB
"""
# Of the driver: all its processes; the JVM alone, whose workers have to end by themselves; the daemon that
# forks workers; one worker; and the process in which a query's source plans its batches.
KILLS = ("broker", "worker", "jvm", "daemon", "driver", "planner")
# By so much writers may be ahead of the slowest query: a machine with much else to do isn't left behind.
LEAD = 8000
# The kills after which a query can't go on by itself.
FATAL = ("jvm", "driver", "planner")
# The one reason for which a driver may end by itself: a machine so busy that Spark's own limit for the start
# of a worker is over. Then it is started again, as by anything that supervises drivers.
BUSY = "Python worker failed to connect back"


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[ReturningBroker]:
    broker = ReturningBroker(tmp_path / "broker", POLICIES, "")
    yield broker
    broker.stop()


@pytest.fixture
def driver(java: str, streams: ReturningBroker, tmp_path: Path) -> Iterator[Driver]:
    made = Driver(streams.url, tmp_path)
    yield made
    if made.starts:
        made.kill("driver")
        made.await_end()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_every_message_counts_once_whatever_is_killed(
    streams: ReturningBroker,
    driver: Driver,
    spark: SparkSession,
    tmp_path: Path,
    faults: list[Fault],
    kills: int,
) -> None:
    chance = random.Random(kills)
    writers: list[Writer] = []

    def is_ahead() -> bool:
        return sum(len(writer.accepted) for writer in writers) > driver.read() + LEAD

    writers += [Writer(streams.url, name, is_ahead) for name in ("a", "b")]
    try:
        driver.start()
        await_more(driver)
        for kind in kinds(kills, chance):
            await_batch(driver, chance.choice(SINKS))
            kill(streams, driver, kind)
            await_more(driver)
    finally:
        for writer in writers:
            writer.end()
    rows = input_of(streams.url)
    in_doubt = check_input(rows, writers)
    ends = {partition: len(found) for partition, found in enumerate(rows)}
    driver.until(lambda: has_read_all(driver, ends), "the queries to read all of the input")
    driver.kill("driver")
    driver.await_end()

    expected = [row for found in rows for row in found]
    repeated = check_stream(streams.url, rows)
    of_queue = [row_of(each) for each in messages(streams.url, "to-queue")]
    assert sorted(of_queue) == expected
    check_places(of_queue)
    for sink in ("files", "batches"):
        found = spark.read.parquet(str(tmp_path / sink)).select("partition", "offset", "group_id", "body")
        assert sorted(Row(*row) for row in found.collect()) == expected, sink
    msgs = len(expected)
    told = f"{kills} kills, {driver.starts} starts"
    remark = f"{in_doubt:,} in the input were sent again by their writers"
    faults.append(Fault(told, "to a stream", msgs, msgs + repeated, 0, repeated, "0 by message-id"))
    faults.append(Fault(told, "to a queue", msgs, msgs, 0, 0, "duplicate_window"))
    faults.append(Fault(told, "to files", msgs, msgs, 0, 0, remark))
    faults.append(Fault(told, "to foreachBatch", msgs, msgs, 0, 0, "a folder for each batch"))
    assert all(BUSY in reason for reason in driver.ends), driver.ends


def kinds(count: int, chance: random.Random) -> Iterator[str]:
    """What is killed, each as often as any other."""
    while count > 0:
        yield from chance.sample(KILLS, min(count, len(KILLS)))
        count -= len(KILLS)


def await_batch(driver: Driver, sink: str) -> None:
    """Until a batch for this sink is under way."""
    driver.until(lambda: driver.planned(sink) > driver.done(sink), f"a batch for {sink}")


def await_more(driver: Driver) -> None:
    """Until every query is through with a batch that was begun after now."""
    planned = {sink: driver.planned(sink) for sink in SINKS}
    driver.until(
        lambda: all(driver.done(sink) > planned[sink] for sink in SINKS), f"batches: {planned}, {driver.said}"
    )


def kill(broker: ReturningBroker, driver: Driver, kind: str) -> None:
    """Kill it, and start again what doesn't go on by itself."""
    if kind == "broker":
        broker.kill()
        broker.start()
        return
    driver.kill(kind)
    if kind in FATAL:
        driver.await_end()
        driver.start()


def check_stream(url: str, rows: list[list[Row]]) -> int:
    """The output has the input's partitions, row for row, once repeats are left out; how many those were.

    A repeat is told by its message-id, and as well by the place in the input that it names: behind one that
    came before nothing is new.
    """
    repeated = 0
    for partition, expected in enumerate(rows):
        found = messages_of(url, f"to-stream/{partition}")
        by_id = {message.id: row_of(message) for message in reversed(found)}
        assert len(by_id) == len(expected), "an id for each row, and a row for each id"
        assert all(by_id[message.id] == row_of(message) for message in found)
        assert [by_id[id_] for id_ in dict.fromkeys(message.id for message in found)] == expected
        new: list[Row] = []
        for row in map(row_of, found):
            assert row.partition == partition
            if not new or row.offset > new[-1].offset:
                new.append(row)
        assert new == expected
        repeated += len(found) - len(expected)
    return repeated


def check_places(found: list[Row]) -> None:
    """Rows of each partition are in its order."""
    for partition in range(PARTITIONS):
        offsets = [row.offset for row in found if row.partition == partition]
        assert offsets == sorted(offsets)
