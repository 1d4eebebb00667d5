"""Files into a queue or topic: each row a message, its columns a JSON object.

Every row was accepted by the broker when it ends, or the job fails and says why. Link credit is what paces
it: a queue that is stopped makes the job wait, not fail. A row keeps its message-id when it is sent again,
so a queue with a duplicate_window takes it once; with --id also when the whole job is run again.

With --order-by one task sends the rows in that order, and a reader with a watermark misses none; without,
all tasks send at once. --end-mark sends one more message after the last row: nothing but the column
--order-by, and that so much later, so that windows over that column are complete (jobs/aggregate.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as f

from broker.cli.terminal import arguments
from broker.errors import OperatorError
from pyspark_sluice.jobs import connector, files
from pyspark_sluice.jobs.program import run
from pyspark_sluice.jobs.progress import Steps
from pyspark_sluice.jobs.session import check_shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

JSON = "application/json"
# Spark's own would cut microseconds to milliseconds.
TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job's own arguments."""
    parser.add_argument("files", metavar="FILES", help="path of the files, as Spark takes it")
    parser.add_argument("address", metavar="ADDRESS", help="the queue or topic")
    connector.add_broker(parser)
    files.add_arguments(parser)
    parser.add_argument("--order-by", metavar="COLUMN", help="send in this order, from one task")
    parser.add_argument("--rows", type=arguments.count, metavar="N", help="only the first so many")
    parser.add_argument("--subject", metavar="COLUMN", help="the message's subject")
    parser.add_argument("--group", metavar="COLUMN", help="the message's group-id")
    parser.add_argument(
        "--id", metavar="TEXT", help="the same when the job is run again: nothing comes twice"
    )
    parser.add_argument("--end-mark", metavar="INTERVAL", help="'2 days': after the last row, so much later")


def work(spark: SparkSession, args: argparse.Namespace) -> int:
    """Sends everything and says how fast."""
    check_shared(spark, args.files)
    if args.end_mark and not args.order_by:
        raise OperatorError("--end-mark needs --order-by, the column that it dates")
    connector.register(spark)
    rows = files.read(spark, args.files, args)
    files.check_columns(rows, args.order_by, args.subject, args.group)
    if args.rows is not None:
        rows = rows.orderBy(args.order_by).limit(args.rows) if args.order_by else rows.limit(args.rows)
    seen = Observation()
    steps = Steps(spark, 2 if args.end_mark else 1)
    begin_s = time.monotonic()
    with steps.step(f"sending to {args.address}"):
        ordered = rows if args.order_by is None else rows.coalesce(1).sortWithinPartitions(args.order_by)
        counted = ordered.observe(seen, *_observed(args))
        send(counted, args, args.id, subject=args.subject, group=args.group)
        seconds = time.monotonic() - begin_s
        steps.note(f"{seen.get['rows']:,} rows")
    if args.end_mark:
        with steps.step("sending the end mark"):
            last = rows.agg(f.max(args.order_by).alias(args.order_by))
            later = f.col(args.order_by) + f.expr(f"interval {args.end_mark}")
            send(last.withColumn(args.order_by, later), args, None if args.id is None else f"{args.id}-end")
    print(told(seen.get, args, seconds))
    return 0


def _observed(args: argparse.Namespace) -> list[Column]:
    found = [f.count(f.lit(1)).alias("rows")]
    if args.order_by:
        found += [f.min(args.order_by).alias("first"), f.max(args.order_by).alias("last")]
    return found


def send(
    rows: DataFrame,
    args: argparse.Namespace,
    query_id: str | None,
    *,
    subject: str | None = None,
    group: str | None = None,
) -> None:
    """Each row a message, with these columns as its subject and group-id; returns when all were accepted."""
    columns = {
        "body": f.to_json(f.struct("*"), TIMES).cast("binary"),
        "content_type": f.lit(JSON),
        **({} if subject is None else {"subject": f.col(subject).cast("string")}),
        **({} if group is None else {"group_id": f.col(group).cast("string")}),
    }
    messages = rows.select(*(column.alias(name) for name, column in columns.items()))
    named = {} if query_id is None else {"queryId": query_id}
    options = connector.options_of(args, address=args.address, **named)
    connector.with_options(messages.write, options).mode("append").save()


def told(seen: dict[str, object], args: argparse.Namespace, seconds: float) -> str:
    """What was sent."""
    rows = int(str(seen["rows"]))
    span = f", {args.order_by} from {seen['first']} to {seen['last']}" if args.order_by else ""
    return f"{rows:,} rows accepted by {args.address} in {seconds:.1f} s, {rows / seconds:,.0f}/s{span}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job."""
    return run("ingest", __doc__, add_arguments, work, argv)


if __name__ == "__main__":
    sys.exit(main())
