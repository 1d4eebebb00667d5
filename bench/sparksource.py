"""The Spark source's rate and its decoder's cost: ``python -m bench.sparksource [--rows 300000]``.

A queue of messages with 200-byte bodies is read to its end through ``local[2]``, on the broker's own cores.
The rate is that of whole triggers, taking, decoding, planning and settling, from the second on: the first
starts the Python workers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from proton import Message
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from bench.contenders import OURS
from broker.client.link import Connection
from pyspark_sluice.decode import SCHEMA, Decoder

TARGET = 30_000
BODY = 200
COLUMNS = {
    "body": ("body",),
    "body and message_id": ("body", "message_id"),
    "all columns": tuple(SCHEMA.names),
}


def encoded(number: int) -> bytes:
    """A message as an application sends it."""
    name = f"m-{number:08d}"
    message = Message(body=bytes(BODY), id=name, subject="reading", properties={"sensor": number})
    message.inferred = True
    return bytes(message.encode())


def decoder_cost(count: int = 30_000) -> dict[str, float]:
    """Microseconds for a row, by the columns asked for; the best of three."""
    messages = [encoded(number) for number in range(count)]
    buffer, sizes = b"".join(messages), [len(each) for each in messages]
    found = {}
    for name, columns in COLUMNS.items():
        decoder = Decoder(StructType([field for field in SCHEMA if field.name in columns]))
        times = []
        for _ in range(4):
            begun = time.perf_counter()
            decoder.batch(buffer, sizes)
            times.append(time.perf_counter() - begun)
        found[name] = min(times[1:]) / count * 1e6
    return found


def fill(url: str, count: int) -> None:
    """The queue to be read."""
    messages = [encoded(number) for number in range(1000)]
    with Connection(url) as connection:
        sender = connection.sender("readings")
        for number in range(count):
            sender.send(messages[number % 1000], 30)
        sender.flush(60)


def read_rate(
    spark: SparkSession, url: str, rows: int, each: int, folder: Path
) -> tuple[int, float, list[int]]:
    """Rows and seconds of all triggers but the first, and how many rows each trigger had."""
    fill(url, rows)
    reader = spark.readStream.format("amqp").option("url", url).option("address", "readings")
    stream = reader.option("maxRowsPerTrigger", str(each)).option("rowsPerPartition", str(each // 2)).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    done = [progress for progress in query.recentProgress if progress["numInputRows"]]
    counts = [int(progress["numInputRows"]) for progress in done]
    seconds = sum(progress["durationMs"]["triggerExecution"] for progress in done[1:]) / 1000
    if sum(counts) != rows:
        raise SystemExit(f"{sum(counts):,} of {rows:,} rows were read")
    for progress in done:
        print(f"  {progress['numInputRows']:>7,} rows: {dict(progress['durationMs'])}")
    return sum(counts[1:]), seconds, counts


def session() -> SparkSession:
    """A quiet one on both cores."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def main(words: Sequence[str] | None = None) -> int:
    """Prints both; exit status 1 below the target."""
    parser = argparse.ArgumentParser(prog="python -m bench.sparksource", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="to be read (%(default)s)")
    parser.add_argument("--each", type=int, default=50_000, help="at most in a trigger (%(default)s)")
    args = parser.parse_args(words)
    for name, cost in decoder_cost().items():
        print(f"decoding {name}: {cost:.2f} us a row")
    with OURS.started() as broker, tempfile.TemporaryDirectory() as folder:
        spark = session()
        rows, seconds, counts = read_rate(spark, broker.url, args.rows, args.each, Path(folder))
        spark.stop()
    rate = rows / seconds if seconds else 0.0
    print(
        f"source: {rate:,.0f} rows/s: {rows:,} in {len(counts) - 1} triggers and {seconds:.2f} s;"
        f" wanted {TARGET:,}"
    )
    return 0 if rate >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
