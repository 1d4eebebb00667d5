"""A program of its own that sends the lines of files to the queue `slow`, for tests that kill its JVM.

``python -m tests.spark.streaming URL FOLDER CHECKPOINT TRIGGER``: says the JVM's process id, then sends, one
file to a batch; TRIGGER is a time between batches, or ``now`` to end behind the last.
"""

from __future__ import annotations

import os
import sys

from tests.spark.conftest import SETTINGS, spark_environment


def main(url: str, folder: str, checkpoint: str, trigger: str) -> None:
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    builder = SparkSession.builder.master("local[2]").appName("killed")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    jvm = spark._jvm
    assert jvm is not None
    print(jvm.java.lang.ProcessHandle.current().pid(), flush=True)
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(folder)
    stream = lines.selectExpr("CAST(value AS BINARY) AS body").writeStream.format("amqp")
    stream = stream.option("url", url).option("address", "slow").option("checkpointLocation", checkpoint)
    if trigger == "now":
        stream = stream.trigger(availableNow=True)
    else:
        stream = stream.trigger(processingTime=trigger)
    stream.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
