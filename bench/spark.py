"""The Spark sink's rate and its encoder's cost: ``python -m bench.spark [--rows 400000]``.

Rows with 200-byte bodies are written through ``local[2]`` by one task and by two at once, into a queue of a
real broker on the same cores. The rate is that of a whole write, planning and logging in included, until the
last message is accepted; the first write, which starts the Python workers, is not counted. Nobody receives.
Exit status 1 below the target.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.contenders import OURS
from bench.sparksource import session
from pyspark_sluice.encode import Encoder
from pyspark_sluice.options import parse
from tests.spark.schemas import schema_of

TARGET = 30_000
BODY = 200
# No threshold stops it.
QUEUE = "flow.none.spark"
SCHEMAS = {
    "body": "body BINARY",
    "body as text": "body STRING",
    "body, subject and two application properties": (
        "body BINARY, subject STRING, application_properties MAP<STRING, BIGINT>"
    ),
}


def encoder_cost(ddl: str, count: int = 50_000) -> float:
    """Microseconds for a row, the id included; the best of three."""
    schema = schema_of(ddl)
    values: dict[str, list[object]] = {
        "body": [
            f"{number:0{BODY}}" if "STRING" in ddl.split(",")[0] else b"%0200d" % number
            for number in range(count)
        ],
        "subject": ["reading"] * count,
        "application_properties": [[("sensor", number), ("site", 7)] for number in range(count)],
    }
    types = {"body": None, "subject": None, "application_properties": pa.map_(pa.string(), pa.int64())}
    columns = {field.name: pa.array(values[field.name], types[field.name]) for field in schema}
    batch = pa.RecordBatch.from_pydict(columns)
    options = parse({"url": "amqp://127.0.0.1", "address": QUEUE}, "sink")
    times = []
    for _ in range(3):
        encoder = Encoder(schema, options, "6f7f0f9e-8c4b-4f34-9d6f-3c7a4c2f9f0e-0-0")
        begun = time.perf_counter()
        for at in range(0, count, 10_000):
            for _message in encoder.encode(batch.slice(at, 10_000)):
                pass
        times.append(time.perf_counter() - begun)
    return min(times) / count * 1e6


def write_rate(spark: SparkSession, url: str, rows: int, tasks: int) -> float:
    """Rows a second of one write by so many tasks."""
    body = f"CAST(lpad(CAST(id AS STRING), {BODY}, '0') AS BINARY) AS body"
    frame = spark.range(0, rows, 1, tasks).selectExpr(body)
    writer = frame.write.format("amqp").option("url", url).option("address", QUEUE)
    begun = time.perf_counter()
    writer.option("durable", "false").mode("append").save()
    return rows / (time.perf_counter() - begun)


def main(words: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="of each write (%(default)s)")
    args = parser.parse_args(words)
    for name, ddl in SCHEMAS.items():
        print(f"encoding {name}: {encoder_cost(ddl):.2f} us a row", flush=True)
    spark = session()
    reached = True
    for tasks in (1, 2):
        # A broker for each, since what is written stays in its memory.
        with OURS.started() as broker:
            write_rate(spark, broker.url, 20_000, tasks)
            rates = [write_rate(spark, broker.url, args.rows, tasks) for _ in range(2)]
        rate = min(rates)
        reached = reached and rate / tasks >= TARGET
        shown = ", ".join(f"{each:,.0f}" for each in rates)
        print(
            f"sink, {tasks} task{'s' * (tasks > 1)}: {rate:,.0f} rows/s, {rate / tasks:,.0f} for each task"
            f" (the slower of {shown}); wanted {TARGET:,} for each",
            flush=True,
        )
    spark.stop()
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
