"""Thresholds, windows and prefetch for every queue of a broker, from the history of its flow.

The history is the broker's own (docs/observability.md): events.jsonl and its rotated files as JSON lines, the
same as Parquet, or the topic $sluice/events as a stream. Of each node, and each stretch of --per, its
rates, depths and stops are summed up and the load behind them is recovered; that load is replayed under
candidate settings with the broker's own flow control, candidates side by side on the executors. --out gets

  loads/      rates in and out (p50, p95, p99), depths, stops, blocked share: by node and stretch
  trials/     what every candidate would have done
  choices/    what is recommended
  policy.yaml the recommendation, for `sluice config apply`
  report.html the same with pictures

docs/advise.md says what is inferred from a history and how far predictions are from what was measured.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from broker.cli.terminal import arguments
from broker.cli.terminal.arguments import counts, resumes, size_resumes, sizes
from broker.manage.advise.candidates import Grid
from pyspark_sluice.jobs import capacity_report, connector, events, page, sizing, tables
from pyspark_sluice.jobs.follow import follow
from pyspark_sluice.jobs.program import run
from pyspark_sluice.jobs.progress import Steps
from pyspark_sluice.jobs.session import check_shared, write_text
from pyspark_sluice.jobs.trials import Bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

SHARED_STEPS = sizing.STEPS + 1
# A page with more nodes than that helps nobody; the tables have all of them.
MOST_SECTIONS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job's own arguments."""
    parser.add_argument(
        "history", metavar="HISTORY", help="path of event files, or amqp://host[:port] for the topic"
    )
    parser.add_argument(
        "--out", required=True, metavar="PATH", help="where results go; they take the place of older ones"
    )
    parser.add_argument(
        "--format", choices=events.FORMATS, default="auto", help="of the files (by the path's end)"
    )
    parser.add_argument("--node", metavar="LIKE", help="only these nodes, as in SQL: orders.%%")
    parser.add_argument(
        "--per", type=arguments.duration, default=3600.0, metavar="T", help="length of a stretch (1h)"
    )
    parser.add_argument(
        "--rtt", type=arguments.duration, default=0.001, metavar="T", help="round trip to the clients (1 ms)"
    )
    parser.add_argument(
        "--max-count", type=arguments.count, default=0, metavar="N", help="no stop above so many messages"
    )
    parser.add_argument(
        "--max-size", type=_one_size, default=0, metavar="SIZE", help="no stop above that size"
    )
    for name, kind, text in (
        ("stop-count", counts, "flow_stop_count to try"),
        ("resume-count", resumes, "flow_resume_count to try, or percentages of the stop"),
        ("stop-size", sizes, "flow_stop_size to try"),
        ("resume-size", size_resumes, "flow_resume_size to try, or percentages of the stop"),
        ("producer-window", counts, "producer_window to try"),
        ("consumer-limit", counts, "consumer_flow_limit to try"),
    ):
        parser.add_argument(f"--{name}", type=kind, default=(), metavar="N[,N...]", help=text)
    topic = parser.add_argument_group("the topic")
    topic.add_argument(
        "--every", type=arguments.duration, default=60.0, metavar="T", help="size so often (60s)"
    )
    topic.add_argument(
        "--last", type=arguments.duration, default=86400.0, metavar="T", help="the last so much (24h)"
    )
    connector.add_options(topic)


def _one_size(text: str) -> int:
    return sizes(text)[0]


def plan_of(args: argparse.Namespace) -> sizing.Plan:
    """What the command line asks for."""
    grid = Grid(
        args.stop_count,
        args.resume_count,
        args.stop_size,
        args.resume_size,
        args.producer_window,
        args.consumer_limit,
    )
    bounds = Bounds(args.max_count, args.max_size)
    return sizing.Plan(args.per, args.node, round(args.rtt * 1e9), grid, bounds)


def work(spark: SparkSession, args: argparse.Namespace) -> int:
    """Sizes what files hold, or what a broker tells, again and again."""
    check_shared(spark, args.out)
    if args.history.startswith(("amqp://", "amqps://")):
        follow(spark, args, lambda lines: report(spark, lines, args))
        return 0
    check_shared(spark, args.history)
    report(spark, events.read(spark, args.history, args.format), args)
    return 0


def report(spark: SparkSession, lines: DataFrame, args: argparse.Namespace) -> None:
    """Sizes the lines and leaves everything in ``args.out``."""
    steps = Steps(spark, SHARED_STEPS)
    sized = sizing.size(spark, lines, plan_of(args), steps)
    try:
        with steps.step("writing"):
            for name, table in (
                ("loads", sized.loads.drop("trace")),
                ("trials", sized.trials),
                ("choices", sized.choices),
            ):
                table.write.mode("overwrite").parquet(f"{args.out}/{name}")
            shown = write_pages(spark, sized, args.out)
            steps.note(args.out)
        for row in shown:
            print(told(row))
    finally:
        sized.release()


def write_pages(spark: SparkSession, sized: sizing.Sized, out: str) -> list[Row]:
    """The policy file and the report; the nodes that were stopped longest."""
    ordered = sized.choices.orderBy(f.desc("recorded_stop_seconds"), "node")
    # A line a node, one partition at a time: however many nodes there are, the file is all that holds them.
    policy = "".join(row["policy"] for row in ordered.select("policy").toLocalIterator())
    write_text(spark, f"{out}/policy.yaml", f"policies:\n{policy}")
    shown = ordered.drop("policy").limit(MOST_SECTIONS).toLocalIterator()
    rows = list(shown)
    names = [row["node"] for row in rows]
    chosen = f.col("node").isin(names)
    sections = (
        sized.loads.where(chosen)
        .groupBy("node")
        .cogroup(sized.trials.where(chosen).groupBy("node"))
        .applyInArrow(capacity_report.section, tables.ddl(capacity_report.SECTIONS))
        .orderBy(f.desc("stop_seconds"), "node")
    )
    parts = [capacity_report.summary(rows), *(row["html"] for row in sections.toLocalIterator())]
    total = sized.choices.count()
    if total > len(rows):
        parts.insert(1, page.paragraph(f"The {total - len(rows):,} other nodes are in choices/.", "note"))
    write_text(spark, f"{out}/report.html", page.document("Flow capacity", parts))
    return rows


def told(row: Row) -> str:
    """One node's recommendation on a line."""
    unit = "size" if row["by_size"] else "count"
    return (
        f"{row['node']}: flow_stop_{unit} {row[f'flow_stop_{unit}']:,}, flow_resume_{unit}"
        f" {row[f'flow_resume_{unit}']:,}, prefetch {row['prefetch']:,}: stopped {row['stop_seconds']:,.2f} s"
        f" (recorded {row['recorded_stop_seconds']:,.2f} s), {row['throughput']:,.0f} msg/s"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job."""
    return run("flow_capacity", __doc__, add_arguments, work, argv)


if __name__ == "__main__":
    sys.exit(main())
