"""A Spark program that drains a queue into Parquet, to be killed: see test_killed.py.

Arguments: url, address, output, checkpoint, and what it does: `once` drains and ends; `between` writes one
batch and waits for the next trigger; `inside` hangs in its second batch, which is written by then.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from tests.spark.conftest import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH = 1000


def main(url: str, address: str, output: str, checkpoint: str, how: str) -> None:
    """Says which process the JVM is, and what it has come to."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import lit

    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    gateway: Any = spark.sparkContext._gateway
    print("jvm", gateway.proc.pid, flush=True)
    written = 0

    def write(frame: DataFrame, number: int) -> None:
        nonlocal written
        frame.withColumn("run", lit(how)).write.mode("append").parquet(output)
        written += 1
        if how == "inside" and written == 2:
            print("written", flush=True)
            time.sleep(3600)

    reader = spark.readStream.format("amqp").option("url", url).option("address", address)
    stream = reader.option("maxRowsPerTrigger", str(BATCH)).load().select("message_id")
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    if how == "once":
        query = writer.trigger(availableNow=True).start()
    elif how == "between":
        query = writer.trigger(processingTime="1 hour").start()
    else:
        query = writer.start()
    query.awaitTermination()
    print("distinct", spark.read.parquet(output).dropDuplicates(["message_id"]).count(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
