"""Which settings are tried on a node's loads, what each would have done, and which is recommended.

Runs on the executors; knows no Spark. Every window of a node is played under the same candidates, so that
what they did in all of them can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from math import ceil
from typing import Any

import pyarrow as pa

from broker.manage.advise.candidates import (
    Candidate,
    Grid,
    Trial,
    is_by_size,
    policy,
    recommended,
    thresholds_to_try,
    windows_to_try,
)
from broker.manage.advise.replay import Outcome, replay
from broker.units import KB
from pyspark_sluice.jobs import tables
from pyspark_sluice.jobs.loads import clients_of, unpacked

Row = Mapping[str, Any]

_SETTINGS: tables.Columns = dict.fromkeys(Candidate.__slots__, "long")
CANDIDATES: tables.Columns = {"node": "string", "observed": "boolean", "by_size": "boolean", **_SETTINGS}
_OUTCOME: tables.Columns = {
    **dict.fromkeys(("seconds", "stop_seconds", "throughput"), "double"),
    **dict.fromkeys(("stops", "settled", "worst_msgs", "worst_bytes", "stayed_msgs", "held_msgs"), "long"),
    **dict.fromkeys(("overshoot_msgs", "overshoot_bytes", "tick_ns", "grain"), "long"),
    **dict.fromkeys(("depth", "depth_bytes"), "array<long>"),
    "closed": "array<double>",
}
TRIALS: tables.Columns = {
    **CANDIDATES,
    "window": "long",
    "kind": "string",
    "endless": "boolean",
    "clients": "string",
    "out_p99": "double",
    "consumers": "long",
    "recorded_stop_seconds": "double",
    "recorded_stops": "long",
    **_OUTCOME,
}
CHOICES: tables.Columns = {
    "node": "string",
    "by_size": "boolean",
    "endless": "boolean",
    **_SETTINGS,
    "prefetch": "long",
    **dict.fromkeys(("seconds", "stop_seconds", "throughput"), "double"),
    **dict.fromkeys(("stops", "worst_msgs", "worst_bytes", "overshoot_msgs"), "long"),
    "recorded_stop_seconds": "double",
    "recorded_stops": "long",
    "policy": "string",
}


# Where a bound is given, stops of these parts of it are tried as well.
PARTS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most a node may hold, which a recommendation keeps to; 0 is as much as it likes."""

    count: int = 0
    size: int = 0

    def within(self, candidate: Candidate) -> Candidate:
        """The candidate with thresholds no higher, its resume in proportion."""
        lowered = candidate
        for unit, most in (("count", self.count), ("size", self.size)):
            stop: int = getattr(candidate, f"flow_stop_{unit}")
            resume: int = getattr(candidate, f"flow_resume_{unit}")
            if most and stop > most:
                below = max(resume * most // stop, 1)
                below -= below % KB if unit == "size" and below > KB else 0
                lowered = replace(lowered, **{f"flow_stop_{unit}": most, f"flow_resume_{unit}": below})
        return lowered


def to_try(rows: pa.Table, grid: Grid, bounds: Bounds) -> pa.Table:
    """The candidates for one node, from its loads: those that any window's figures ask for."""
    loads = sorted(rows.to_pylist(), key=lambda row: row["window"])
    seen = _seen(loads[-1])
    by_size = bounds.count == 0 and (bounds.size > 0 or is_by_size(seen, grid))
    deepest = replace(
        NOTHING,
        worst_msgs=max(row["deepest_msgs"] for row in loads),
        worst_bytes=max(row["deepest_bytes"] for row in loads),
    )
    grids = [grid]
    if bounds.count and not (by_size or grid.stop_counts):
        grids.append(replace(grid, stop_counts=tuple(max(bounds.count // part, 1) for part in PARTS)))
    if bounds.size and by_size and not grid.stop_sizes:
        grids.append(replace(grid, stop_sizes=tuple(max(bounds.size // part, KB) for part in PARTS)))
    found = dict.fromkeys(
        bounds.within(candidate)
        for each in grids
        for candidate in thresholds_to_try(seen, each, deepest, by_size=by_size)
    )
    rows_out = [
        {"node": loads[0]["node"], "observed": each == seen, "by_size": by_size, **asdict(each)}
        for each in found
    ]
    return tables.table(CANDIDATES, rows_out)


def more_to_try(rows: pa.Table, grid: Grid) -> pa.Table:
    """Other windows at the best of what was tried."""
    trials = rows.to_pylist()
    best, _ = best_of(trials)
    tried = {candidate_of(row) for row in trials}
    found = [each for each in windows_to_try(best.candidate, grid) if each not in tried]
    head = {"node": trials[0]["node"], "observed": False, "by_size": trials[0]["by_size"]}
    return tables.table(CANDIDATES, [{**head, **asdict(each)} for each in dict.fromkeys(found)])


def play(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row is a load and a candidate; out comes what it would have done."""
    for rows in batches:
        for row in rows.to_pylist():
            outcome = replay(unpacked(row["trace"]), candidate_of(row).settings(), clients_of(row["clients"]))
            yield tables.batch(TRIALS, [{**row, **asdict(outcome)}])


def choose(rows: pa.Table) -> pa.Table:
    """The recommendation for one node, from all its trials."""
    trials = rows.to_pylist()
    best, endless = best_of(trials)
    by_size: bool = trials[0]["by_size"]
    windows = {row["window"]: row for row in trials}.values()
    node = trials[0]["node"]
    chosen = {
        "node": node,
        "by_size": by_size,
        "endless": endless,
        **asdict(best.candidate),
        **asdict(best.outcome),
        "prefetch": max(_prefetch(row, best.candidate) for row in windows),
        "recorded_stop_seconds": sum(row["recorded_stop_seconds"] for row in windows),
        "recorded_stops": sum(row["recorded_stops"] for row in windows),
        "policy": policy(node, best.candidate, trials[-1]["kind"], by_size=by_size),
    }
    return tables.table(CHOICES, [chosen])


# --- over all windows

NOTHING = Outcome(0.0, 0.0, 0, 0, 0.0, 0, 0, 0, 0, 0, 0, (), (), (), 0, 1)


def best_of(rows: Sequence[Row]) -> tuple[Trial, bool]:
    """The recommended candidate with what it would have done in all windows, and whether there is no end.

    An overload is without end where it lasts to the end of the last window; what an earlier one leaves
    is over in the next.
    """
    endless = bool(max(rows, key=lambda row: row["window"])["endless"])
    found: dict[Candidate, list[Row]] = {}
    for row in rows:
        found.setdefault(candidate_of(row), []).append(row)
    trials = [
        Trial(candidate, combined(each), any(row["observed"] for row in each))
        for candidate, each in found.items()
    ]
    # Rows come as tasks end: of equals the first is recommended, which must not depend on that.
    trials.sort(key=lambda trial: (not trial.observed, astuple(trial.candidate)))
    return recommended(trials, endless=endless), endless


def combined(rows: Sequence[Row]) -> Outcome:
    """What a candidate did in several windows, as if they were one; without its picture."""
    seconds, settled = sum(row["seconds"] for row in rows), sum(row["settled"] for row in rows)
    last = max(rows, key=lambda row: row["window"])
    return replace(
        NOTHING,
        seconds=seconds,
        stop_seconds=sum(row["stop_seconds"] for row in rows),
        stops=sum(row["stops"] for row in rows),
        settled=settled,
        throughput=settled / max(seconds, 1e-9),
        worst_msgs=max(row["worst_msgs"] for row in rows),
        worst_bytes=max(row["worst_bytes"] for row in rows),
        stayed_msgs=last["stayed_msgs"],
        held_msgs=max(row["held_msgs"] for row in rows),
        overshoot_msgs=max(row["overshoot_msgs"] for row in rows),
        overshoot_bytes=max(row["overshoot_bytes"] for row in rows),
        grain=max(row["grain"] for row in rows),
    )


def candidate_of(row: Row) -> Candidate:
    """The settings in a row."""
    return Candidate(**{name: row[name] for name in Candidate.__slots__})


def outcome_of(row: Row) -> Outcome:
    """What they did, in a row."""
    return Outcome(**{name: row[name] for name in Outcome.__slots__})


def _seen(load: Row) -> Candidate | None:
    """The thresholds a load was recorded under."""
    names = [name for name in Candidate.__slots__ if name.startswith("flow_")]
    if not (load["flow_stop_count"] or load["flow_stop_size"]):
        return None
    return Candidate(**{name: load[name] for name in names})


# A window that is open for twice the round trip and a turn of both ends keeps a consumer busy (as in
# broker.flow.adaptive, whose headroom is the same).
TURN_S = 0.005
LEAST_PREFETCH = 10


def _prefetch(row: Row, candidate: Candidate) -> int:
    """The credit a client should give: what its share of the fastest rate takes in twice a round trip."""
    rate = row["out_p99"] / max(row["consumers"], 1)
    needed = ceil(2 * rate * (clients_of(row["clients"]).rtt_ns / 1e9 + TURN_S))
    most = candidate.consumer_flow_limit or needed
    return int(max(min(needed, most), min(LEAST_PREFETCH, most)))
