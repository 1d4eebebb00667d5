"""Dead letters: a report by address, reason and producer, and back to where they came from.

`report` looks at a dead-letter queue, or several, and takes nothing: how many letters died for which reason
on the way to which address, who sent them, since when. --out gets the same as groups/ (Parquet) and
report.html.

`redrive` brings letters back to their original address (or --to), their ids and all else unchanged. Without
--yes it only says how many would go where. A letter is settled in the dead-letter queue when its target has
accepted it. Those without a message-id, or with one that several letters share, stay; `sluice move` takes
all.

Both take the same filters. A letter's producer is its user-id, or the application property that
--producer-property names. --where takes SQL over address, reason, producer, died, times, subject, size,
message_id, application_properties and text, the body.
"""

from __future__ import annotations

import argparse
import sys
from functools import reduce
from html import escape
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from pyspark_sluice.jobs import connector, page, tables
from pyspark_sluice.jobs.letters import UNKNOWN, Filter, grouped, letters
from pyspark_sluice.jobs.program import REFUSED, run
from pyspark_sluice.jobs.progress import Steps
from pyspark_sluice.jobs.session import check_shared, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MOST_GROUPS = 500
SHOWN = ("letters", "address", "reason", "producer", "bytes", "first", "last")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job's own arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="report|redrive")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("queues", nargs="+", metavar="QUEUE", help="the dead-letter queues")
    common.add_argument("--address", metavar="LIKE", help="only on the way to these: orders.%%")
    common.add_argument("--reason", metavar="LIKE", help="only for this reason: rejected, expired, ...")
    common.add_argument("--producer", metavar="LIKE", help="only from these")
    common.add_argument("--where", metavar="SQL", help="only those for which this is true")
    common.add_argument("--producer-property", metavar="NAME", help="an application property that says who")
    common.add_argument("--out", metavar="PATH", help="where the report goes")
    connector.add_broker(common)
    verbs.add_parser("report", parents=[common], help="what is there, and why")
    back = verbs.add_parser("redrive", parents=[common], help="back to where they were going")
    back.add_argument("--to", metavar="ADDRESS", help="all there, instead of to where each was going")
    back.add_argument("--yes", action="store_true", help="do it; without this it is only said")


def work(spark: SparkSession, args: argparse.Namespace) -> int:
    """Reports, or redrives."""
    check_shared(spark, *filter(None, (args.out,)))
    connector.register(spark)
    options = connector.options_of(args)
    if args.verb == "redrive":
        from pyspark_sluice.jobs import redrive

        # Before anything is looked at: these are for two ends.
        redrive.check(options)
        options = connector.of_end(options, "source")
    steps = Steps(spark, 2 if args.verb == "redrive" and args.yes else 1)
    everything = reduce(
        lambda one, other: one.unionByName(other),
        [
            letters(spark, queue, {**options, "address": queue}, args.producer_property)
            for queue in dict.fromkeys(args.queues)
        ],
    ).persist()
    wanted = Filter(args.address, args.reason, args.producer, args.where).of(everything)
    try:
        if args.verb == "report":
            return report(spark, wanted, args, steps)
        return back(spark, everything, wanted, args, steps)
    finally:
        everything.unpersist()


# --- looking


def report(spark: SparkSession, wanted: DataFrame, args: argparse.Namespace, steps: Steps) -> int:
    """Prints the groups, and leaves them in ``args.out``."""
    groups = grouped(wanted).persist()
    with steps.step("looking at the letters"):
        total = groups.agg(
            f.coalesce(f.sum("letters"), f.lit(0)).alias("letters"), f.count("*").alias("groups")
        ).first()
        assert total is not None
        steps.note(f"{total['letters']:,} in {total['groups']:,} groups")
    rows = list(groups.limit(MOST_GROUPS).toLocalIterator())
    print(table(SHOWN, [[_shown(row[name]) for name in SHOWN] for row in rows]))
    if args.out:
        groups.write.mode("overwrite").parquet(f"{args.out}/groups")
        write_text(spark, f"{args.out}/report.html", document(rows, args, total["letters"], total["groups"]))
    groups.unpersist()
    return 0


def document(rows: Sequence[Any], args: argparse.Namespace, total: int, groups: int) -> str:
    """The groups as a page."""
    heads = (*SHOWN, "most times", "one of them")
    columns = (*SHOWN, "times", "sample")
    cells = [[escape(_shown(row[name])) for name in columns] for row in rows]
    parts = [page.paragraph(f"{total:,} letters in {', '.join(args.queues)}, nothing was taken.")]
    if groups > len(rows):
        parts.append(page.paragraph(f"{groups - len(rows):,} smaller groups are in groups/.", "note"))
    return page.document("Dead letters", [*parts, page.grid(heads, cells)])


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (heads, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)


# --- bringing back


def back(
    spark: SparkSession, everything: DataFrame, wanted: DataFrame, args: argparse.Namespace, steps: Steps
) -> int:
    """Says what would go where, and with ``--yes`` brings it there."""
    target = f.col("address") if args.to is None else f.lit(args.to)
    shared = (
        everything.groupBy("queue", "message_id").count().where("count > 1").select("queue", "message_id")
    )
    known = wanted.withColumn("target", target).where(
        f.col("message_id").isNotNull() & (f.col("target") != UNKNOWN) & (f.col("target") != f.col("queue"))
    )
    able = known.join(shared, ["queue", "message_id"], "left_anti").persist()
    with steps.step("choosing the letters"):
        asked, total = able.count(), wanted.count()
        steps.note(f"{asked:,} of {total:,} can be brought back")
    if not args.yes:
        ways = able.groupBy("queue", "target", "reason").count().orderBy(f.desc("count"), "target")
        rows = [
            [_shown(row["count"]), *(row[name] for name in ("queue", "target", "reason"))]
            for row in ways.limit(MOST_GROUPS).toLocalIterator()
        ]
        print(table(("letters", "from", "to", "reason"), rows))
        print(f"would bring back {asked:,} letters; say --yes to do it")
        return 0
    with steps.step("bringing them back"):
        moved = _bring(spark, able, args)
        steps.note(f"{sum(row['moved'] for row in moved):,} letters")
    rows = [
        [*(_shown(row[name]) for name in ("moved", "queue", "target")), _shown(row["asked"] - row["moved"])]
        for row in moved
    ]
    print(table(("letters", "from", "to", "gone meanwhile"), rows))
    left = total - asked
    if left:
        print(f"{left:,} stay: without a message-id of their own, or without an address")
    return REFUSED if left else 0


def _bring(spark: SparkSession, able: DataFrame, args: argparse.Namespace) -> list[Any]:
    """One action, so that each letter is asked for once; a row for each way."""
    from pyspark_sluice.jobs import redrive

    options = connector.options_of(args)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return redrive.redrive(batches, options)

    tasks = spark.sparkContext.defaultParallelism
    chosen = able.select("queue", "target", "message_id").repartition(tasks, "message_id")
    counted = chosen.mapInArrow(task, tables.ddl(redrive.MOVED))
    ways = counted.groupBy("queue", "target").agg(
        f.sum("asked").alias("asked"), f.sum("moved").alias("moved")
    )
    return list(ways.orderBy("queue", "target").collect())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job."""
    return run("dead_letters", __doc__, add_arguments, work, argv)


if __name__ == "__main__":
    sys.exit(main())
