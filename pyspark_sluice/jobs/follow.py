"""The events' topic, added to a history that is sized now and then.

Neither waits for the other. A batch brings no more events than the broker lets a link hold (1,000), a
subscriber that falls behind loses its oldest beyond 10,000 (broker/manage/events/history.py), and a busy node
tells one a second; sizing takes as long as it takes. So:

1. A query adds every second what came to OUT/arrived: a small file each time.
2. Each --every another thread makes one file of those, in OUT/history, and has the end of that sized.

A batch that is done again, and files that were on their way when the job ended, are in the history twice;
each event counts once all the same.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from broker.errors import SluiceError
from pyspark_sluice.jobs import connector, events
from pyspark_sluice.jobs.session import delete, exists, files_of
from pyspark_sluice.jobs.streams import watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "$sluice/events"
READ_EVERY_S = 1
# Spark's jobs of the second thread: a group to cancel, and a pool that leaves the query its share.
SIZING = "sizing"
_STOP_S = 20.0


def follow(spark: SparkSession, args: argparse.Namespace, size: Callable[[DataFrame], None]) -> None:
    """Until a signal ends it; raises why the query failed, or the sizing. ``size`` gets the lines of the last
    ``args.last`` seconds; a SluiceError of it is told, and the next time may do better."""
    query = _read(spark, args)
    ended = threading.Event()
    faults: list[Exception] = []

    def often() -> None:
        spark.sparkContext.setJobGroup(SIZING, SIZING)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", SIZING)
        try:
            while not ended.wait(args.every):
                _size(spark, args, size)
        except Exception as error:  # noqa: BLE001  raised below, on the thread that waits
            if not ended.is_set():
                faults.append(error)
                query.stop()

    sizing = threading.Thread(target=often, name=SIZING, daemon=True)
    sizing.start()
    try:
        watch(query, tell=False)
    finally:
        ended.set()
        until = time.monotonic() + _STOP_S
        # Between two of its jobs there is none to cancel.
        while sizing.is_alive() and time.monotonic() < until:
            spark.sparkContext.cancelJobGroup(SIZING)
            sizing.join(0.2)
    if faults:
        raise faults[0]
    gather(spark, args.out)


def _read(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    connector.register(spark)
    kinds = ",".join(f"'{each}'" for each in events.EVENTS)
    options = {"url": args.history, "address": TOPIC, "selector": f"event IN ({kinds})", **dict(args.option)}
    told = connector.with_options(spark.readStream.schema("body string"), options).load()

    def add(batch: DataFrame, number: int) -> None:
        batch.select(f.col("body").alias("line")).coalesce(1).write.mode("append").parquet(
            f"{args.out}/arrived"
        )

    writer = told.writeStream.foreachBatch(add).option("checkpointLocation", f"{args.out}/checkpoint")
    query: StreamingQuery = writer.trigger(processingTime=f"{READ_EVERY_S} seconds").start()
    return query


def _size(spark: SparkSession, args: argparse.Namespace, size: Callable[[DataFrame], None]) -> None:
    gather(spark, args.out)
    if not exists(spark, f"{args.out}/history"):
        return
    try:
        size(events.last(spark.read.parquet(f"{args.out}/history"), args.last))
    except SluiceError as error:
        print(error, file=sys.stderr)


def gather(spark: SparkSession, out: str) -> None:
    """One file of all that have arrived: else a day's would be as many as it has seconds."""
    found = files_of(spark, f"{out}/arrived")
    if found:
        spark.read.parquet(*found).coalesce(1).write.mode("append").parquet(f"{out}/history")
        delete(spark, found)
