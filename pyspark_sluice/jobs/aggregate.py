"""A queue of JSON rows, summed up by windows of time into Parquet as they come.

A window is written once the watermark has passed it: --lateness behind the latest --time there was. A row
that comes later than that is counted as late and left out. A message that came twice (its message-id says
so) counts once. Begun again with the same --checkpoint, the job goes on where it was.

--once takes what the queue holds and ends. --compare FILES then sums up files in the same way and says
whether both are equal; exit status 1 if they are not.
"""

from __future__ import annotations

import argparse
import sys
import time
from html import escape
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from broker.cli.terminal import arguments
from broker.errors import OperatorError
from pyspark_sluice.jobs import connector, files, page
from pyspark_sluice.jobs.program import REFUSED, run
from pyspark_sluice.jobs.session import check_shared, write_text
from pyspark_sluice.jobs.streams import Seen, watch
from pyspark_sluice.jobs.windows import BEGIN, Compared, Summing, compared, summed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job's own arguments."""
    parser.add_argument("address", metavar="ADDRESS", help="the queue")
    parser.add_argument(
        "--out", required=True, metavar="PATH", help="where the windows go; others stay there"
    )
    parser.add_argument("--checkpoint", metavar="PATH", help="where it was (OUT/checkpoint)")
    parser.add_argument("--time", required=True, metavar="COLUMN", help="the column that says when")
    parser.add_argument("--window", default="1 hour", metavar="INTERVAL", help="length of a window (1 hour)")
    parser.add_argument(
        "--lateness", default="1 hour", metavar="INTERVAL", help="how late a row may be (1 hour)"
    )
    parser.add_argument(
        "--by", type=_names, default=(), metavar="COLUMN[,...]", help="a row for each of these"
    )
    parser.add_argument(
        "--measure", type=_names, default=(), metavar="COLUMN[,...]", help="what is summed up"
    )
    parser.add_argument("--every", type=arguments.duration, default=1.0, metavar="T", help="a batch (1s)")
    parser.add_argument("--once", action="store_true", help="end when the queue is empty")
    parser.add_argument("--compare", metavar="FILES", help="files that were ingested, for comparison")
    connector.add_broker(parser)
    files.add_arguments(parser)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def work(spark: SparkSession, args: argparse.Namespace) -> int:
    """Runs the query, then tells and compares."""
    check_shared(spark, args.out, *filter(None, (args.checkpoint, args.compare)))
    connector.register(spark)
    how = Summing(args.time, args.window, args.lateness, args.by, args.measure)
    if args.schema is None:
        args.schema = _schema_of(spark, args)
    begin_s = time.monotonic()
    seen = watch(_begin(summed(received(spark, args, how), how), args))
    seconds = time.monotonic() - begin_s
    found = spark.read.parquet(f"{args.out}/windows")
    comparison = None
    if args.compare:
        comparison = compared(found, summed(files.read(spark, args.compare, args), how))
    write_text(spark, f"{args.out}/report.html", report(args, found, seen, comparison))
    print(
        f"{seen.rows:,} rows in {seen.batches:,} batches, {seconds:.1f} s; {seen.late_rows:,} too late;"
        f" {args.out}/windows"
    )
    if comparison is None:
        return 0
    print(comparison.told)
    return 0 if comparison.equal else REFUSED


def _schema_of(spark: SparkSession, args: argparse.Namespace) -> str:
    """What the files to compare with have, where nothing was said."""
    if args.compare is None:
        raise OperatorError("say the rows' columns with --schema")
    return ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}"
        for field in files.read(spark, args.compare, args).schema.fields
    )


def received(spark: SparkSession, args: argparse.Namespace, how: Summing) -> DataFrame:
    """The queue's rows as a stream, each once, with their watermark."""
    options = connector.options_of(args, address=args.address)
    schema = "body binary, message_id string"
    messages: DataFrame = connector.with_options(spark.readStream.schema(schema), options).load()
    row = f.from_json(f.col("body").cast("string"), files.structure(args.schema))
    rows = messages.select("message_id", row.alias("row")).select("message_id", "row.*")
    # A message without an id can't be told from another: it is given one that no other has.
    known = rows.withColumn("message_id", f.coalesce("message_id", f.uuid()))
    return known.withWatermark(how.time, how.lateness).dropDuplicatesWithinWatermark(["message_id"])


def _begin(windows: DataFrame, args: argparse.Namespace) -> StreamingQuery:
    writer = windows.writeStream.format("parquet").outputMode("append").queryName(f"aggregate {args.address}")
    writer = writer.option("path", f"{args.out}/windows")
    writer = writer.option("checkpointLocation", args.checkpoint or f"{args.out}/checkpoint")
    if args.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{args.every} seconds").start()


# --- the report


def report(args: argparse.Namespace, found: DataFrame, seen: Seen, comparison: Compared | None) -> str:
    """What came, the last of it batch by batch, and the fullest windows."""
    parts = [
        page.paragraph(f"{args.address}: windows of {args.window} over {args.time}, in {args.out}/windows.")
    ]
    if comparison is not None:
        parts.append(page.paragraph(f"Compared with {args.compare}: {comparison.told}."))
    heads = ("batch", "at", "rows", "s", "rows/s", "watermark", "rows in state", "late")
    cells = [
        (
            *(f"{batch.number:,}", escape(batch.at), f"{batch.rows:,}", f"{batch.seconds:.1f}"),
            f"{batch.rows / batch.seconds:,.0f}" if batch.seconds else "",
            *(escape(batch.watermark), f"{batch.state_rows:,}", f"{batch.late_rows:,}"),
        )
        for batch in seen.last
    ]
    parts.append("<h2>Batches</h2>")
    if seen.batches > len(seen.last):
        earlier = f"{seen.batches - len(seen.last):,} earlier ones are not shown."
        parts.append(page.paragraph(earlier, "note"))
    parts.append(page.grid(heads, cells))
    fullest = found.orderBy(f.desc("rows"), BEGIN).limit(25)
    rows = [[escape(str(value)) for value in row] for row in fullest.toLocalIterator()]
    parts += ["<h2>The fullest windows</h2>", page.grid(fullest.columns, rows)]
    return page.document(f"Windows of {args.address}", parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job."""
    return run("aggregate", __doc__, add_arguments, work, argv)


if __name__ == "__main__":
    sys.exit(main())
