"""A Spark program for an environment that has the connector's wheel and some PySpark, nothing else of ours.

``python spark_program.py URL FOLDER STEP...``: takes the steps and prints what each found, one JSON object a
line, ``{"step": ..., "found": ...}``. Run by tests/packaging/test_connector.py and test_spark_versions.py.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS = 1000
SECONDS = 120


class Steps:
    """Each method is a step, each returns what it found."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark = spark
        self.url = url
        self.folder = folder

    def versions(self) -> list[str]:
        """PySpark's version, and whether the broker's package is there."""
        from importlib.util import find_spec

        import pyspark

        import pyspark_sluice

        assert "site-packages" in pyspark_sluice.__file__, pyspark_sluice.__file__
        return [pyspark.__version__, "broker" if find_spec("broker") else "no broker"]

    def write_batch(self) -> list[int]:
        """The same rows twice under one query id: what the broker accepted each time."""
        from pyspark_sluice import write_batch

        frame = self.rows(ROWS)
        return [write_batch(frame, url=self.url, address="batch", queryId="load").accepted for _ in range(2)]

    def foreach_batch(self) -> list[int]:
        """Files as micro-batches, the last one done again after a restart: which batches were sent."""
        from pyspark_sluice import foreach_batch

        send = foreach_batch(url=self.url, address="foreach")
        done: list[int] = []

        def sent(frame: DataFrame, batch: int) -> None:
            send(frame, batch)
            done.append(batch)

        self._twice("foreach", lambda lines: lines.writeStream.foreachBatch(sent))
        return done

    def sink(self) -> int:
        """The same through ``format("amqp")``: how many runs came to their end."""
        return self._twice("sink", lambda lines: lines.writeStream.format("amqp").options(**self._to("sink")))

    def table(self) -> int:
        """Rows written by ``format("amqp")``, read as a table."""
        self.rows(ROWS).write.format("amqp").options(**self._to("table")).mode("append").save()
        return self.spark.read.format("amqp").options(**self._to("table")).load().count()

    def queue(self) -> dict[str, Any]:
        """A queue as a stream, in two runs of one checkpoint: the rows of each, and the largest batch."""
        self.rows(ROWS).write.format("amqp").options(**self._to("queue")).mode("append").save()
        source = self.spark.readStream.format("amqp").options(**self._to("queue"))
        frame = source.option("maxRowsPerTrigger", "300").schema("message_id string, body string").load()
        first = self._read(frame, "queue", ROWS)
        again = self.spark.range(ROWS, ROWS + 10).selectExpr("CAST(id AS STRING) AS body")
        again.write.format("amqp").options(**self._to("queue")).mode("append").save()
        second = self._read(frame, "queue", 10)
        return {
            "first": sum(map(len, first)),
            "different": len({row for batch in first for row in batch}),
            "largest": max(map(len, first)),
            "second": sum(map(len, second)),
        }

    def queue_once(self) -> list[int]:
        """A queue in two runs that end with what is there: how many rows each had."""
        self.rows(50).write.format("amqp").options(**self._to("once")).mode("append").save()
        found = []
        for _ in range(2):
            rows: list[Any] = []
            source = self.spark.readStream.format("amqp").options(**self._to("once"))
            writer = source.schema("body string").load().writeStream.foreachBatch(partial(_collect, rows))
            writer = writer.option("checkpointLocation", str(self.folder / "once"))
            self._end(writer.trigger(availableNow=True).start())
            found.append(len(rows))
        return found

    def stream(self) -> list[int]:
        """A stream, in two runs that end with what is there: how many rows and different rows each had."""
        found = []
        for run in range(2):
            frame = self.spark.range(run * 100, run * 100 + 100).selectExpr("CAST(id AS STRING) AS body")
            frame.write.format("amqp").options(**self._to("log")).mode("append").save()
            source = self.spark.readStream.format("sluice").options(**self._to("log"))
            read = source.option("startingOffsets", "earliest").schema("body string, offset long").load()
            rows: list[Any] = []
            collect = partial(_collect, rows)
            self._end(
                read.writeStream.foreachBatch(collect)
                .option("checkpointLocation", str(self.folder / "log"))
                .trigger(availableNow=True)
                .start()
            )
            found += [len(rows), len({row["body"] for row in rows})]
        return found

    def refused_limit(self) -> str:
        """An option that needs a newer Spark."""
        source = self.spark.readStream.format("amqp").options(**self._to("log"))
        frame = source.option("sourceType", "stream").option("maxOffsetsPerTrigger", "10").load()
        query = frame.writeStream.format("console")
        try:
            self._end(query.option("checkpointLocation", str(self.folder / "refused")).start())
        except Exception as fault:  # noqa: BLE001  what is Spark's is of several classes
            return str(fault)
        return "not refused"

    def refused_source(self) -> str:
        """The data source where Spark has none."""
        try:
            from pyspark_sluice import AmqpDataSource
        except ImportError as fault:
            return str(fault)
        return f"not refused: {AmqpDataSource}"

    # --- what steps share

    def rows(self, count: int) -> DataFrame:
        """So many different rows, in two partitions."""
        return self.spark.range(0, count, 1, 2).selectExpr("CAST(id AS STRING) AS body")

    def _to(self, address: str) -> dict[str, str]:
        return {"url": self.url, "address": address}

    def _twice(self, name: str, sink: Callable[[DataFrame], Any]) -> int:
        """Send three files, then forget that the last was sent, as a crash would, and send again."""
        files, checkpoint = self.folder / f"{name}-in", self.folder / name
        files.mkdir()
        for part in range(3):
            lines = "\n".join(str(row) for row in range(part * 100, part * 100 + 100))
            (files / f"{part}.txt").write_text(lines)
        for _ in range(2):
            source = self.spark.readStream.option("maxFilesPerTrigger", "1").text(str(files))
            writer = sink(source.selectExpr("value AS body")).option("checkpointLocation", str(checkpoint))
            self._end(writer.trigger(availableNow=True).start())
            (checkpoint / "commits/2").unlink(missing_ok=True)
            (checkpoint / "commits/.2.crc").unlink(missing_ok=True)
        return 2

    def _end(self, query: StreamingQuery) -> None:
        assert query.awaitTermination(SECONDS), "the query doesn't end"

    def _read(self, frame: DataFrame, name: str, wanted: int) -> list[list[str]]:
        """The bodies of each micro-batch of a run that is stopped when it has read enough and settled it."""
        batches: list[list[str]] = []
        query = (
            frame.writeStream.foreachBatch(
                lambda each, _: batches.append([row["body"] for row in each.collect()])
            )
            .option("checkpointLocation", str(self.folder / name))
            .trigger(processingTime="0 seconds")
            .start()
        )
        deadline = time.monotonic() + SECONDS
        while sum(map(len, batches)) < wanted and query.isActive and time.monotonic() < deadline:
            time.sleep(0.1)
        # The question for what comes next settles the last batch: not before that one is in the log.
        time.sleep(3)
        query.stop()
        assert query.exception() is None, query.exception()
        return [batch for batch in batches if batch]


def _collect(into: list[Any], frame: DataFrame, batch: int) -> None:
    into.extend(frame.collect())


def main(url: str, folder: str, *steps: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("versions")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Spark finds data sources written in Python only on threads whose session is active: it is now.
    spark.createDataFrame([(0,)], "number INT").count()
    taken = Steps(spark, url, Path(folder))
    for step in steps:
        print(json.dumps({"step": step, "found": getattr(taken, step)()}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
