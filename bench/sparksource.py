"""The Spark sources' rates and their decoder's cost: ``python -m bench.sparksource [--rows 300000]``.

A queue of messages with 200-byte bodies, and as many in a stream of one, two and four partitions, are read to
their end through ``local[2]``, on the broker's own cores. A rate is that of whole triggers, taking, decoding,
planning and settling, from the second on: the first starts the Python workers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

from proton import Message
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from bench.contenders import OURS
from broker.client.link import Connection
from broker.codec.offsets import with_offset
from pyspark_sluice.decode import SCHEMA, Decoder
from pyspark_sluice.rangereader import ROWS

TARGET = 30_000
BODY = 200
PARTITIONS = (1, 2, 4)
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
    """Microseconds for a row, by the columns asked for, in batches of ROWS; the best of three."""
    messages = [encoded(number) for number in range(count)]
    of_stream = [with_offset(message, number) for number, message in enumerate(messages)]
    found = {name: _cost(messages, columns) for name, columns in COLUMNS.items()}
    return found | {"all columns of a stream's": _cost(of_stream, COLUMNS["all columns"])}


def _cost(messages: Sequence[bytes], columns: Sequence[str]) -> float:
    decoder = Decoder(StructType([field for field in SCHEMA if field.name in columns]))
    parts = [messages[at : at + ROWS] for at in range(0, len(messages), ROWS)]
    batches = [(b"".join(part), array("q", map(len, part))) for part in parts]
    times = []
    for _ in range(4):
        begun = time.perf_counter()
        for buffer, sizes in batches:
            decoder.batch(buffer, sizes)
        times.append(time.perf_counter() - begun)
    return min(times[1:]) / len(messages) * 1e6


def fill(url: str, address: str, count: int) -> None:
    """The messages to be read."""
    messages = [encoded(number) for number in range(1000)]
    with Connection(url) as connection:
        sender = connection.sender(address)
        for number in range(count):
            sender.send(messages[number % 1000], 30)
        sender.flush(60)


def fill_stream(url: str, address: str, partitions: int, count: int) -> None:
    """The same in equal parts, each of which is full before the next one."""
    for part in range(partitions):
        fill(url, f"{address}/{part}", count // partitions)


def read_rate(
    spark: SparkSession,
    rows: int,
    folder: Path,
    source: str = "amqp",
    schema: str = "",
    columns: Sequence[str] = (),
    **options: str,
) -> tuple[int, float, list[int]]:
    """Rows and seconds of all triggers but the first, and how many rows each trigger had.

    ``schema`` is asked for, and ``columns`` are selected, where they aren't empty.
    """
    reader = spark.readStream.format(source).options(**options)
    stream = (reader.schema(schema) if schema else reader).load()
    stream = stream.select(*columns) if columns else stream
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder))
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


def session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A quiet one on both cores."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.log.level", "ERROR")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(words: Sequence[str] | None = None) -> int:
    """Print all of them; exit status 1 where one is below the target."""
    parser = argparse.ArgumentParser(prog="python -m bench.sparksource", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="to be read (%(default)s)")
    parser.add_argument("--each", type=int, default=50_000, help="at most in a trigger (%(default)s)")
    args = parser.parse_args(words)
    for name, cost in decoder_cost().items():
        print(f"decoding {name}: {cost:.2f} us a row")
    rates = []
    with OURS.started() as broker, tempfile.TemporaryDirectory() as folder:
        spark = session()
        fill(broker.url, "readings", args.rows)
        given = {"url": broker.url, "address": "readings", "maxRowsPerTrigger": str(args.each)}
        given["rowsPerPartition"] = str(args.each // 2)
        rates.append(rate_of(spark, "queue", args.rows, Path(folder), given))
        for partitions in PARTITIONS:
            address = f"stream.of{partitions}"
            fill_stream(broker.url, address, partitions, args.rows)
            given = {"url": broker.url, "address": address, "maxOffsetsPerTrigger": str(args.each)}
            given |= {"partitions": str(partitions), "startingOffsets": "earliest"}
            rates.append(rate_of(spark, f"stream of {partitions}", args.rows, Path(folder), given))
        spark.stop()
    print(f"wanted {TARGET:,} rows/s")
    return 0 if min(rates) >= TARGET else 1


def rate_of(spark: SparkSession, name: str, rows: int, folder: Path, options: dict[str, str]) -> float:
    """Print a source's rate, and return it."""
    read, seconds, counts = read_rate(spark, rows, folder / name.replace(" ", "-"), **options)
    rate = read / seconds if seconds else 0.0
    print(f"{name}: {rate:,.0f} rows/s: {read:,} in {len(counts) - 1} triggers and {seconds:.2f} s")
    return rate


if __name__ == "__main__":
    sys.exit(main())
