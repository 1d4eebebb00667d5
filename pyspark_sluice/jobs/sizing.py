"""Sizing as a Spark plan: lines of history in, loads, trials and a recommendation for each node out.

The driver learns how many lines there are and when the first one was, and nothing else of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

# Spark reads the annotations of what it is given, so what they name has to be there.
import pyarrow as pa
from pyspark.sql import functions as f

from broker.errors import OperatorError
from broker.manage.advise.candidates import Grid
from pyspark_sluice.jobs import events, loads, tables, trials
from pyspark_sluice.jobs.trials import Bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_sluice.jobs.progress import Steps

# Replays differ in length by far more than tasks cost: so many for each core keep all of them busy.
TASKS_PER_CORE = 4
STEPS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked: windows of ``window_s`` of the nodes like ``node``, or of all."""

    window_s: float = 3600.0
    node: str | None = None
    rtt_ns: int = 1_000_000
    grid: Grid = field(default_factory=Grid)
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True, slots=True)
class Sized:
    """The three tables, kept until ``release``: figures, trials, and one recommendation for each node."""

    loads: DataFrame
    trials: DataFrame
    choices: DataFrame
    passed_over: int

    def release(self) -> None:
        """Let the executors forget them."""
        for table in (self.choices, self.trials, self.loads):
            table.unpersist()


def size(spark: SparkSession, lines: DataFrame, plan: Plan, steps: Steps) -> Sized:
    """Everything about a history. OperatorError if it tells of no node."""
    tasks = spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    with steps.step("reading the history"):
        heads = events.told(lines)
        found = _counted(heads, plan)
        steps.note(found.told)
    rows = events.in_windows(events.of_nodes(heads, plan.node), plan.window_s, found.begin_us)
    with steps.step("recovering the loads"):
        recovered = _loads(rows, plan, tasks).persist()
        windows = recovered.count()
        steps.note(f"{windows:,} of a node in a window")
    if windows == 0:
        raise OperatorError("the history has no sample of these nodes")
    with steps.step("trying thresholds"):
        first = _played(recovered, _candidates(recovered, plan), tasks).persist()
        steps.note(f"{first.count():,} replays")
    with steps.step("trying windows"):
        more = first.groupBy("node").applyInArrow(_more(plan.grid), tables.ddl(trials.CANDIDATES))
        second = _played(recovered, more, tasks).persist()
        steps.note(f"{second.count():,} replays")
    with steps.step("choosing"):
        tried = first.unionByName(second)
        choices = tried.groupBy("node").applyInArrow(trials.choose, tables.ddl(trials.CHOICES)).persist()
        steps.note(f"{choices.count():,} nodes")
    return Sized(recovered, tried, choices, found.passed_over)


@dataclass(frozen=True, slots=True)
class _Counted:
    events: int
    passed_over: int
    begin_us: int
    end_us: int

    @property
    def told(self) -> str:
        begin, end = (
            datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(" ", "seconds")
            for at_us in (self.begin_us, self.end_us)
        )
        more = f"; {self.passed_over:,} lines are no events and are passed over" if self.passed_over else ""
        return f"{self.events:,} events from {begin} to {end}{more}"


def _counted(heads: DataFrame, plan: Plan) -> _Counted:
    head = f.col("head")
    at_us = f.unix_micros(head["time"])
    row = heads.agg(
        f.count("*").alias("lines"),
        f.count("head").alias("events"),
        f.min(at_us).alias("begin_us"),
        f.max(at_us).alias("end_us"),
    ).first()
    if row is None or not row["events"] or row["begin_us"] is None:
        raise OperatorError(f"no event of version {events.VERSION} in the history")
    return _Counted(row["events"], row["lines"] - row["events"], row["begin_us"], row["end_us"])


def _loads(rows: DataFrame, plan: Plan, tasks: int) -> DataFrame:
    rtt_ns = plan.rtt_ns

    def load(key: tuple[pa.Scalar, ...], group: pa.Table) -> pa.Table:
        return loads.load(key, group, rtt_ns)

    # Spread by hand: a group of a few hundred kilobytes takes seconds, which Spark can't know.
    spread = rows.repartition(tasks, "node", "window")
    return spread.groupBy("node", "window").applyInArrow(load, tables.ddl(loads.COLUMNS))


def _candidates(recovered: DataFrame, plan: Plan) -> DataFrame:
    grid, bounds = plan.grid, plan.bounds

    def to_try(group: pa.Table) -> pa.Table:
        return trials.to_try(group, grid, bounds)

    return recovered.drop("trace").groupBy("node").applyInArrow(to_try, tables.ddl(trials.CANDIDATES))


def _more(grid: Grid) -> Callable[[pa.Table], pa.Table]:
    def more(group: pa.Table) -> pa.Table:
        return trials.more_to_try(group, grid)

    return more


def _played(recovered: DataFrame, candidates: DataFrame, tasks: int) -> DataFrame:
    """Every candidate of a node on every load of it, whichever task is free."""
    of_load = recovered.select(
        *("node", "window", "kind", "endless", "clients", "trace", "out_p99", "consumers"),
        f.col("stop_seconds").alias("recorded_stop_seconds"),
        f.col("stops").alias("recorded_stops"),
    )
    pairs = candidates.join(of_load, "node").repartition(tasks)
    return pairs.mapInArrow(trials.play, tables.ddl(trials.TRIALS))
