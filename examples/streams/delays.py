"""The program for Spark: a day's delays by destination, with the airport's name, from a stream into a queue.

``spark-submit examples/streams/delays.py URL FOLDER AIRPORTS``. A flight that came twice counts once, and a
day is written when flights of five days later have come. Its message-id, ``day/destination``, tells a repeat.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from examples.streams.books import LATE_MINUTES, LATENESS
from examples.streams.ends import QUEUE, STREAM
from pyspark_sluice import AmqpDataSource

FLIGHT = "time_hour timestamp, dest string, dep_delay int"
# Offsets of a micro-batch: small, so that there are many to be killed in.
MOST = 1500


def main(url: str, folder: str, airports: str) -> None:
    """Runs until it is killed."""
    spark = SparkSession.builder.appName("delays").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.dataSource.register(AmqpDataSource)
    reader = spark.readStream.format("amqp").option("url", url).option("address", STREAM)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(MOST))
    messages = reader.schema("message_id string, body binary").load()
    flight = f.from_json(f.col("body").cast("string"), FLIGHT).alias("flight")
    flights = messages.select("message_id", flight).select("message_id", "flight.*")
    once = flights.withWatermark("time_hour", f"{LATENESS.days} days").dropDuplicatesWithinWatermark(
        ["message_id"]
    )
    delay = f.coalesce("dep_delay", f.lit(0))
    days = once.groupBy(f.window("time_hour", "1 day"), "dest").agg(
        f.count(f.lit(1)).alias("flights"),
        f.count_if(delay >= LATE_MINUTES).alias("delayed"),
        f.sum(delay).alias("minutes"),
    )
    names = spark.read.option("header", "true").csv(airports).selectExpr("faa AS dest", "name AS airport")
    named = days.join(f.broadcast(names), "dest", "left")
    day = f.date_format(f.col("window")["start"], "yyyy-MM-dd").alias("day")
    columns = (day, f.col("dest"), f.col("airport"), f.col("flights"), f.col("delayed"), f.col("minutes"))
    rows = named.select(
        f.concat_ws("/", day, "dest").alias("message_id"),
        f.col("dest").alias("subject"),
        f.lit("application/json").alias("content_type"),
        f.to_json(f.struct(*columns), {"ignoreNullFields": "false"}).cast("binary").alias("body"),
    )
    writer = rows.writeStream.format("amqp").option("url", url).option("address", QUEUE)
    writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
