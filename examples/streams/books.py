"""What the flights come to by day and destination, summed up without any broker or Spark."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from examples.flights import table

# A departure so late is a delayed one.
LATE_MINUTES = 15
# How long a day waits for its last flights, and what the end mark is behind the latest of all.
LATENESS = timedelta(days=5)
END_MARK = LATENESS + timedelta(days=2)


class Delays(NamedTuple):
    """A day's flights to a destination; ``minutes`` is the sum of the delays that are known."""

    airport: str | None
    flights: int
    delayed: int
    minutes: int


def days(count: int) -> Iterator[list[dict[str, Any]]]:
    """The first ``count`` flights, a day's at a time."""
    rows = map(json.loads, table.rows(count))
    for _, some in groupby(rows, key=lambda row: (row["month"], row["day"])):
        yield list(some)


def airports() -> dict[str, str]:
    """Names by code, of the table beside the flights'; a few destinations aren't in it."""
    with (table.archive().parent / "airports.csv").open(newline="", encoding="utf-8") as lines:
        return {row["faa"]: row["name"] for row in csv.DictReader(lines)}


def expected(count: int) -> dict[str, Delays]:
    """By ``day/destination``, the days in UTC."""
    names = airports()
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for rows in days(count):
        for row in rows:
            sums = found[f"{row['time_hour'][:10]}/{row['dest']}"]
            delay = row["dep_delay"] or 0
            sums[0] += 1
            sums[1] += delay >= LATE_MINUTES
            sums[2] += delay
    return {key: Delays(names.get(key[11:]), *sums) for key, sums in found.items()}


def end_mark(count: int) -> str:
    """The time of one more message, behind which every day is complete."""
    latest = max(row["time_hour"] for rows in days(count) for row in rows)
    return (datetime.fromisoformat(latest) + END_MARK).strftime("%Y-%m-%dT%H:%M:%SZ")
