"""A Spark program that reads a partitioned stream into four sinks at once, to be killed: see killing.py.

Arguments: url, folder. Each sink has a query and a checkpoint of its own, and begins with the stream's first
message where it has none yet: `stream` and `queue` are addresses of the broker, `files` is Spark's sink for
Parquet, and `batches` is a folder for each batch, written anew when the batch is done again. The program ends
with the first query that fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.conftest import SETTINGS, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INPUT = "flights"
SINKS = ("stream", "queue", "files", "batches")
MOST = 4000


def main(url: str, folder: str) -> None:
    """Runs until a query fails, or until it is killed."""
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    # A task whose worker is killed is tried again, as on a cluster.
    builder = SparkSession.builder.master("local[2,3]").appName("relaying")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for sink in SINKS:
        writer = writer_to(sink, rows(spark, url), url, Path(folder))
        query = writer.option("checkpointLocation", f"{folder}/state/{sink}").queryName(sink).start()
        # One after the other: Spark gives a process of a source ten seconds to start.
        while query.isActive and query.status["message"].startswith("Initializing"):
            query.awaitTermination(1)
    spark.streams.awaitAnyTermination()


def rows(spark: SparkSession, url: str) -> DataFrame:
    """The stream's messages and their places; how many partitions it has is asked of the broker."""
    reader = spark.readStream.format("amqp").option("url", url).option("address", INPUT)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(MOST))
    return reader.schema("body string, group_id string, partition int, offset long").load()


def writer_to(sink: str, found: DataFrame, url: str, folder: Path) -> DataStreamWriter:
    """What writes to one of the sinks."""
    from pyspark.sql import functions as f

    if sink in ("stream", "queue"):
        place = f.create_map(
            f.lit("partition"), f.col("partition").cast("long"), f.lit("offset"), f.col("offset")
        )
        messages = found.select("body", "group_id", place.alias("application_properties"))
        return messages.writeStream.format("amqp").option("url", url).option("address", f"to-{sink}")
    if sink == "files":
        return found.writeStream.format("parquet").option("path", str(folder / sink))

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(folder / sink / f"batch={number}"))

    return found.writeStream.foreachBatch(write)


if __name__ == "__main__":
    main(*sys.argv[1:])
