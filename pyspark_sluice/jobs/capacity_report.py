"""What sizing found, to look at: a section for each node, made on the executors; knows no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from typing import Any

import pyarrow as pa

from broker.manage.advise import picture
from broker.manage.advise.candidates import CandidateResults, Trial
from broker.manage.advise.trace import Curve, Trace
from pyspark_sluice.jobs import page, tables, trials
from pyspark_sluice.jobs.loads import clients_of
from pyspark_sluice.jobs.trials import Row, candidate_of, outcome_of

SECTIONS: tables.Columns = {"node": "string", "stop_seconds": "double", "html": "string"}
# Of many windows, those that tell most; of many candidates, so many pictures.
MOST_WINDOWS = 48
MOST_PANELS = 9


def section(key: tuple[pa.Scalar, ...], loads: pa.Table, tried: pa.Table) -> pa.Table:
    """One node: figures by window, what was tried in them, and what follows."""
    windows = sorted(loads.drop_columns(["trace"]).to_pylist(), key=lambda row: row["window"])
    rows = tried.to_pylist()
    chosen = trials.choose(tried).to_pylist()[0]
    best, endless = trials.best_of(rows)
    html = "\n".join(
        [
            f"<h2>{escape(chosen['node'])}</h2>",
            page.paragraph(_sentence(chosen, windows)),
            page.source(f"policies:\n{chosen['policy']}"),
            *(page.paragraph(note, "note") for note in dict.fromkeys(_notes(windows, endless))),
            _picture(windows, rows, best),
            "<h3>What each candidate would have done</h3>",
            _candidates(rows, best, by_size=chosen["by_size"]),
            "<h3>Figures by window</h3>",
            _figures(windows),
        ]
    )
    stopped_s = chosen["recorded_stop_seconds"]
    return tables.table(SECTIONS, [{"node": chosen["node"], "stop_seconds": stopped_s, "html": html}])


def _sentence(chosen: Row, windows: Sequence[Row]) -> str:
    """The recommendation beside what was."""
    seconds = sum(row["seconds"] for row in windows)
    unit = "size" if chosen["by_size"] else "count"
    stop, resume = (
        picture.amount(chosen[f"flow_{name}_{unit}"], chosen["by_size"]) for name in ("stop", "resume")
    )
    return (
        f"In {seconds:,.0f} s producers were stopped {chosen['recorded_stops']:,} times, for"
        f" {chosen['recorded_stop_seconds']:,.2f} s. Recommended: stop {stop}, resume {resume}, producer"
        f" window {chosen['producer_window']:,}, consumer limit {chosen['consumer_flow_limit']:,}, and a"
        f" prefetch of {chosen['prefetch']:,} in each client. The same load would then be stopped"
        f" {chosen['stops']:,} times, for {chosen['stop_seconds']:,.2f} s, with"
        f" {chosen['throughput']:,.0f} messages a second and a depth of {chosen['worst_msgs']:,} at most."
    )


def _notes(windows: Sequence[Row], endless: bool) -> list[str]:
    found = [note for row in windows for note in row["notes"]]
    if endless:
        found.append(
            "The overload lasts to the end: a larger threshold only stops later, so the smallest that keeps"
            " consumers busy is recommended."
        )
    return found


def _candidates(rows: Sequence[Row], best: Trial, *, by_size: bool) -> str:
    """Every candidate over all windows."""
    found: dict[object, list[Row]] = {}
    for row in rows:
        found.setdefault(candidate_of(row), []).append(row)
    tried = [
        Trial(candidate_of(each[0]), trials.combined(each), any(row["observed"] for row in each))
        for each in found.values()
    ]
    tried.sort(key=lambda trial: [getattr(trial.candidate, name) for name in trial.candidate.__slots__])
    cells = [
        [
            escape(picture.heading(trial, by_size)),
            f"{trial.outcome.stop_seconds:,.2f}",
            f"{trial.outcome.stops:,}",
            f"{trial.outcome.throughput:,.0f}",
            f"{trial.outcome.worst_msgs:,}",
            picture.amount(trial.outcome.worst_bytes, by_size=True),
            f"{trial.outcome.held_msgs:,}",
        ]
        for trial in tried
    ]
    marked = next((n for n, trial in enumerate(tried) if trial.candidate == best.candidate), None)
    heads = ("settings", "stopped s", "stops", "msg/s", "worst depth", "worst size", "held at producers")
    return page.grid(heads, cells, marked)


def _figures(windows: Sequence[Row]) -> str:
    shown = sorted(windows, key=lambda row: row["stop_seconds"], reverse=True)[:MOST_WINDOWS]
    shown.sort(key=lambda row: row["window"])
    heads = [
        *("begin (UTC)", "s", "in p50", "p95", "p99", "out p50", "p95", "p99"),
        *("depth p50", "p95", "p99", "worst", "stops", "stopped", "blocked", "producers", "consumers"),
    ]
    cells = [
        [
            datetime.fromtimestamp(row["begin_us"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            f"{row['seconds']:,.0f}",
            *(
                f"{row[f'{what}_{each}']:,.0f}"
                for what in ("in", "out", "depth")
                for each in ("p50", "p95", "p99")
            ),
            *(f"{row[name]:,}" for name in ("worst_msgs", "stops")),
            *(page.share(row[name]) for name in ("stopped_share", "blocked_share")),
            *(f"{row[name]:,}" for name in ("producers", "consumers")),
        ]
        for row in shown
    ]
    more = len(windows) - len(shown)
    tail = (
        page.paragraph(f"{more:,} windows that were stopped for less are not shown.", "note") if more else ""
    )
    return page.grid(heads, cells) + tail


# --- the picture


def _picture(windows: Sequence[Row], rows: Sequence[Row], best: Trial) -> str:
    """The window that was stopped longest, under the candidates that differ most."""
    worst = max(windows, key=lambda row: (row["stop_seconds"], row["received"]))
    inside = [row for row in rows if row["window"] == worst["window"]]
    by_size: bool = inside[0]["by_size"]
    found = [Trial(candidate_of(row), outcome_of(row), row["observed"]) for row in inside]
    chosen = next(trial for trial in found if trial.candidate == best.candidate)
    shown = [trial for trial in found if trial.observed or trial is chosen]
    seen = {_thresholds(trial, by_size) for trial in shown}
    for trial in found:
        if len(shown) < MOST_PANELS and _thresholds(trial, by_size) not in seen:
            seen.add(_thresholds(trial, by_size))
            shown.append(trial)
    shown.sort(key=lambda trial: _thresholds(trial, by_size))
    unlimited = replace(trials.NOTHING, worst_msgs=worst["deepest_msgs"], worst_bytes=worst["deepest_bytes"])
    empty = Curve([])
    trace = Trace(worst["node"], round(worst["seconds"] * 1e9), empty, empty, 0.0, ())
    advice = CandidateResults(
        trace, clients_of(worst["clients"]), tuple(shown), chosen, unlimited, worst["endless"], by_size
    )
    return picture.svg(advice)


def _thresholds(trial: Trial, by_size: bool) -> tuple[int, int]:
    return picture.stop_of(trial.candidate, by_size), picture.resume_of(trial.candidate, by_size)


def summary(choices: Sequence[Any]) -> str:
    """The table at the top: one line a node."""
    heads = (
        *("node", "stop", "resume", "producer window", "consumer limit", "prefetch"),
        *("stopped s: recorded", "predicted", "msg/s", "worst depth"),
    )
    cells = []
    for row in choices:
        unit = "size" if row["by_size"] else "count"
        cells.append(
            [
                escape(row["node"]),
                picture.amount(row[f"flow_stop_{unit}"], row["by_size"]),
                picture.amount(row[f"flow_resume_{unit}"], row["by_size"]),
                *(f"{row[name]:,}" for name in ("producer_window", "consumer_flow_limit", "prefetch")),
                *(f"{row[name]:,.2f}" for name in ("recorded_stop_seconds", "stop_seconds")),
                f"{row['throughput']:,.0f}",
                f"{row['worst_msgs']:,}",
            ]
        )
    return page.grid(heads, cells)
