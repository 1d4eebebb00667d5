"""The broker's event history as rows: from JSON lines, from Parquet, or from a batch of the events' topic.

A row is one event of one node: when it was (``at_us``, wall clock), its place in the broker's life (``seq``)
and the line itself, which only ``broker.manage.advise.history`` takes apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

VERSION = 1
# What sizing reads; a topic has no depth of its own, what holds its messages are its subscriptions.
EVENTS = ("sample", "stopped", "opened")
# Nodes that go with a connection, such as those for answers: nobody sizes them.
TEMPORARY = "$temporary/"
HEAD = "v int, event string, node string, kind string, seq long, mono_ns long, time timestamp"
FORMATS = ("auto", "json", "parquet")


def read(spark: SparkSession, path: str, kind: str = "auto") -> DataFrame:
    """The lines of files, one a row in the column ``line``; auto goes by the path's end."""
    if kind == "auto":
        kind = "parquet" if path.rstrip("/").endswith(".parquet") else "json"
    if kind == "json":
        return spark.read.text(path).select(f.col("value").alias("line"))
    found = spark.read.parquet(path)
    return found.select(_line(found).alias("line"))


def _line(found: DataFrame) -> Column:
    """A column that holds whole events, or columns that are the fields of one."""
    for name in ("line", "value", "body"):
        if name in found.columns:
            return f.col(name).cast("string")
    return f.to_json(f.struct("*"))


def told(lines: DataFrame) -> DataFrame:
    """Every line with the head of its event; null where it is none of this version."""
    head = f.from_json("line", HEAD)
    # What breaks off may still have a few of the fields.
    whole = (head["v"] == VERSION) & f.concat(head["event"], head["seq"], head["time"]).isNotNull()
    return lines.withColumn("head", f.when(whole, head))


def last(lines: DataFrame, seconds: float) -> DataFrame:
    """The lines of the last so many seconds that they tell of."""
    timed = lines.withColumn("time", f.from_json("line", HEAD)["time"])
    end = timed.agg(f.max("time").alias("end"))
    since = f.col("end") - f.make_dt_interval(secs=f.lit(float(seconds)))
    return timed.join(f.broadcast(end)).where(f.col("time") > since).select("line")


def of_nodes(heads: DataFrame, node: str | None = None) -> DataFrame:
    """The rows that sizing reads, each once: of nodes that a LIKE pattern names, or of all that last."""
    head = f.col("head")
    rows = heads.where(head["event"].isin(*EVENTS) & (f.length(head["node"]) > 0)).where(
        f.coalesce(head["kind"], f.lit("queue")) != "topic"
    )
    named = ~head["node"].startswith(TEMPORARY) if node is None else head["node"].like(node)
    return (
        rows.where(named)
        .select(
            head["node"].alias("node"),
            f.unix_micros(head["time"]).alias("at_us"),
            head["seq"].alias("seq"),
            head["mono_ns"].alias("mono_ns"),
            head["kind"].alias("kind"),
            "line",
        )
        .dropDuplicates(["node", "seq", "mono_ns"])
    )


def in_windows(rows: DataFrame, window_s: float, begin_us: int) -> DataFrame:
    """The rows with the number of their window, counted from ``begin_us``."""
    width_us = max(round(window_s * 1e6), 1)
    return rows.withColumn("window", f.floor((f.col("at_us") - f.lit(begin_us)) / width_us).cast("long"))
