"""Rows summed up by windows of time: the same table from a stream and from a file.

Sums are of whole numbers or decimals where the columns are, so that their order doesn't matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BEGIN, END = "window_begin", "window_end"


@dataclass(frozen=True, slots=True)
class Summing:
    """``window`` and ``lateness`` as Spark writes intervals; ``by`` and ``measures`` are columns."""

    time: str
    window: str
    lateness: str
    by: Sequence[str] = ()
    measures: Sequence[str] = ()


def summed(rows: DataFrame, how: Summing) -> DataFrame:
    """A row for each window and group: how many rows, and of each measure count, sum, least and most."""
    groups = [f.window(how.time, how.window), *(f.col(name) for name in how.by)]
    found = rows.where(f.col(how.time).isNotNull()).groupBy(*groups).agg(*_aggregates(how))
    begin, end = f.col("window")["start"].alias(BEGIN), f.col("window")["end"].alias(END)
    return found.select(begin, end, *(name for name in found.columns if name != "window"))


def _aggregates(how: Summing) -> list[Column]:
    found = [f.count(f.lit(1)).alias("rows")]
    for name in how.measures:
        column = f.col(name)
        found += [
            f.count(column).alias(f"{name}_count"),
            f.sum(column).alias(f"{name}_sum"),
            f.min(column).alias(f"{name}_min"),
            f.max(column).alias(f"{name}_max"),
        ]
    return found


@dataclass(frozen=True, slots=True)
class Compared:
    """Two such tables beside each other."""

    windows: int
    expected: int
    rows: int
    expected_rows: int
    missing: int
    surplus: int

    @property
    def equal(self) -> bool:
        """Whether every window is in both and says the same."""
        return self.missing == self.surplus == 0

    @property
    def told(self) -> str:
        """In a line."""
        verdict = (
            "equal" if self.equal else f"{self.missing:,} missing or different, {self.surplus:,} too many"
        )
        return (
            f"{self.windows:,} windows of {self.rows:,} rows from the stream,"
            f" {self.expected:,} of {self.expected_rows:,} from the file: {verdict}"
        )


def compared(found: DataFrame, expected: DataFrame) -> Compared:
    """The stream's table with the file's."""
    ours, theirs = _totals(found), _totals(expected)
    return Compared(
        windows=ours[0],
        expected=theirs[0],
        rows=ours[1],
        expected_rows=theirs[1],
        missing=expected.exceptAll(found).count(),
        surplus=found.exceptAll(expected).count(),
    )


def _totals(table: DataFrame) -> tuple[int, int]:
    row = table.agg(
        f.count(f.lit(1)).alias("windows"), f.coalesce(f.sum("rows"), f.lit(0)).alias("rows")
    ).first()
    assert row is not None
    return row["windows"], row["rows"]
