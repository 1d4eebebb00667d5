"""Spark reads our stream and a topic of Kafka: ``python -m bench.sparkkafka [--rows 300000] [--rounds 3]``.

Both have the same messages, 200 bytes each, in as many partitions, on this machine; ``local[2]`` reads each
to its end in turns. The first trigger, in which workers start, isn't counted. Kafka comes by Maven, once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.contenders import OURS
from bench.peers import kafka
from bench.sparksource import BODY, fill_stream, read_rate, session

PARTITIONS = (1, 2)
# What is read, of ours and of Kafka's: all that there is without a word on it, or the same of both.
COLUMNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default columns": ({}, {}),
    "value, partition and offset": (
        {"schema": "body binary, partition int, offset bigint"},
        {"columns": ("value", "partition", "offset")},
    ),
}


def fill_topic(spark: SparkSession, address: str, topic: str, partitions: int, rows: int) -> None:
    """Write as many messages, in equal parts, to a topic of Kafka's."""
    kafka.create(address, topic, partitions)
    body = f.lit(bytes(BODY))
    data = spark.range(rows).select(
        body.alias("value"), (f.col("id") % partitions).cast("int").alias("partition")
    )
    options = {"kafka.bootstrap.servers": address, "topic": topic}
    data.write.format("kafka").options(**options).save()


def main(words: Sequence[str] | None = None) -> int:
    """Print the rates, and ours as a part of Kafka's."""
    parser = argparse.ArgumentParser(prog="python -m bench.sparkkafka", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="to be read (%(default)s)")
    parser.add_argument("--each", type=int, default=50_000, help="at most in a trigger (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="medians of so many (%(default)s)")
    args = parser.parse_args(words)
    jars = ",".join(map(str, sorted(kafka.connector().glob("*.jar"))))
    rates: dict[tuple[int, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name, OURS.started() as broker:
        folder = Path(name)
        (folder / "kafka").mkdir()
        with kafka.running(folder / "kafka") as address:
            spark = session({"spark.jars": jars})
            for partitions in PARTITIONS:
                fill_stream(broker.url, f"stream.of{partitions}", partitions, args.rows)
                fill_topic(spark, address, f"of{partitions}", partitions, args.rows)
            each = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(args.each)}
            for round_ in range(args.rounds):
                for partitions in PARTITIONS:
                    ours = {
                        "url": broker.url,
                        "address": f"stream.of{partitions}",
                        "partitions": str(partitions),
                    }
                    theirs = {"kafka.bootstrap.servers": address, "subscribe": f"of{partitions}"}
                    place = folder / f"{partitions}-{round_}"
                    for name, (mine, others) in COLUMNS.items():
                        for source, options, chosen in (
                            ("amqp", ours | each, mine),
                            ("kafka", theirs | each, others),
                        ):
                            at = place / source / name.replace(" ", "-")
                            read, seconds, _ = read_rate(spark, args.rows, at, source, **chosen, **options)
                            rates.setdefault((partitions, name, source), []).append(read / seconds)
            spark.stop()
    for partitions in PARTITIONS:
        for name in COLUMNS:
            us, them = rates[partitions, name, "amqp"], rates[partitions, name, "kafka"]
            part = median(a / b for a, b in zip(us, them, strict=True))
            said = f"ours {median(us):,.0f} rows/s, Kafka's {median(them):,.0f}, ratio {part:.2f}"
            print(f"{partitions} partitions, {name}: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
