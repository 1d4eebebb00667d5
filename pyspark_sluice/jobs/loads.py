"""One node's load in one window: its figures, and what is replayed, recovered from the events of both.

Runs on the executors, one group of rows at a time; knows no Spark.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise

import pyarrow as pa

from broker.config.node import NodeSettings
from broker.manage.advise.candidates import explain, is_endless
from broker.manage.advise.demand import recover
from broker.manage.advise.history import SECOND_NS, FlowHistory, HistorySample, parse
from broker.manage.advise.replay import Clients, replay
from broker.manage.advise.trace import Curve, Measured, Thresholds, Trace
from pyspark_sluice.jobs import tables

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
COLUMNS: tables.Columns = {
    "node": "string",
    "window": "long",
    "kind": "string",
    "begin_us": "long",
    "seconds": "double",
    **{f"in_{name}": "double" for name in QUANTILES},
    **{f"out_{name}": "double" for name in QUANTILES},
    **{f"depth_{name}": "double" for name in QUANTILES},
    "received": "long",
    "settled": "long",
    "worst_msgs": "long",
    "worst_bytes": "long",
    "stops": "long",
    "stop_seconds": "double",
    "stopped_share": "double",
    "blocked_share": "double",
    "producers": "long",
    "consumers": "long",
    "flow_stop_count": "long",
    "flow_resume_count": "long",
    "flow_stop_size": "long",
    "flow_resume_size": "long",
    "deepest_msgs": "long",
    "deepest_bytes": "long",
    "endless": "boolean",
    "clients": "string",
    "trace": "binary",
    "notes": "array<string>",
}


def load(key: tuple[pa.Scalar, ...], rows: pa.Table, rtt_ns: int) -> pa.Table:
    """The load of one node and window, or nothing where no sample tells of it."""
    node, window = (scalar.as_py() for scalar in key)
    ordered = rows.sort_by([("at_us", "ascending"), ("seq", "ascending")])
    archive = parse(line.encode() for line in ordered.column("line").to_pylist())
    history = archive.nodes.get(node)
    if history is None or not history.samples:
        return tables.table(COLUMNS, [])
    where = {
        "window": window,
        "kind": next(filter(None, ordered.column("kind").to_pylist()), "queue"),
        "begin_us": ordered.column("at_us")[0].as_py(),
    }
    return tables.table(COLUMNS, [_figures(history, archive.notes, rtt_ns, where)])


def _figures(
    history: FlowHistory, notes: Sequence[str], rtt_ns: int, where: dict[str, object]
) -> dict[str, object]:
    trace = recover(history)
    was, seen = trace.measured or Measured(0.0, 0, 0, 0, 0), trace.thresholds or Thresholds()
    clients = explain(trace, rtt_ns)
    unlimited = replay(trace, replace(NodeSettings(), flow_control=False), clients)
    seconds = max(trace.seconds, 1e-9)
    return {
        **where,
        "node": history.node,
        "seconds": trace.seconds,
        **_quantiles("in", [_rate(each, each.received) for each in history.samples], trace),
        **_quantiles("out", [_rate(each, each.settled) for each in history.samples], trace),
        **_quantiles("depth", list(_depths(history)), trace),
        "received": sum(each.received for each in history.samples),
        "settled": was.settled,
        "worst_msgs": was.worst_msgs,
        "worst_bytes": was.worst_bytes,
        "stops": was.stops,
        "stop_seconds": was.stop_seconds,
        "stopped_share": min(was.stop_seconds / seconds, 1.0),
        "blocked_share": min(_blocked_ns(history) / 1e9 / seconds, 1.0),
        "producers": trace.producers,
        "consumers": trace.consumers,
        "flow_stop_count": seen.stop_msgs,
        "flow_resume_count": seen.resume_msgs,
        "flow_stop_size": seen.stop_bytes,
        "flow_resume_size": seen.resume_bytes,
        "deepest_msgs": unlimited.worst_msgs,
        "deepest_bytes": unlimited.worst_bytes,
        "endless": is_endless(trace, unlimited),
        "clients": json.dumps(asdict(clients)),
        "trace": packed(trace),
        "notes": [*notes, *trace.notes],
    }


# --- figures


def _rate(sample: HistorySample, msgs: int) -> tuple[float, int]:
    return msgs * SECOND_NS / sample.interval_ns, sample.interval_ns


def _quantiles(name: str, weighed: list[tuple[float, int]], trace: Trace) -> dict[str, float]:
    """Over time: a value counts as long as it held, and 0 while no sample says otherwise."""
    silent_ns = trace.duration_ns - sum(length_ns for _, length_ns in weighed)
    held = sorted([*weighed, (0.0, max(silent_ns, 0))])
    total_ns = sum(length_ns for _, length_ns in held)
    return {f"{name}_{each}": _quantile(held, part * total_ns) for each, part in QUANTILES.items()}


def _quantile(held: list[tuple[float, int]], at_ns: float) -> float:
    passed_ns = 0
    for value, length_ns in held:
        passed_ns += length_ns
        if passed_ns >= at_ns:
            return value
    return held[-1][0]


def _depths(history: FlowHistory) -> Iterator[tuple[float, int]]:
    """Every depth that was told, and how long until the next."""
    first = history.samples[0]
    seen = [(first.at_ns - first.interval_ns, first.depth_msgs - first.received + first.settled)]
    seen += [(each.at_ns, each.depth_msgs) for each in history.samples]
    seen += [(each.at_ns, each.depth_msgs) for each in history.turns]
    for (begin_ns, depth), (end_ns, _) in pairwise(sorted(seen)):
        yield float(max(depth, 0)), end_ns - begin_ns


def _blocked_ns(history: FlowHistory) -> int:
    """How long samples saw producers without credit and in line for some."""
    return sum(each.interval_ns for each in history.samples if each.blocked_producers)


# --- what is replayed, as bytes


def packed(trace: Trace) -> bytes:
    """A load as one value of a table."""
    plain = {name: getattr(trace, name) for name in Trace.__slots__}
    for name in ("offered", "served"):
        curve: Curve = plain[name]
        plain[name] = [curve.times, [round(count, 3) for count in curve.counts]]
    for name in ("thresholds", "measured"):
        plain[name] = None if plain[name] is None else asdict(plain[name])
    return zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 1)


def unpacked(value: bytes) -> Trace:
    """The load again."""
    plain = json.loads(zlib.decompress(value))
    for name in ("offered", "served"):
        plain[name] = Curve(list(zip(*plain[name], strict=True)))
    plain["sizes"] = tuple((at_ns, size) for at_ns, size in plain["sizes"])
    plain["thresholds"] = plain["thresholds"] and Thresholds(**plain["thresholds"])
    plain["measured"] = plain["measured"] and Measured(**plain["measured"])
    plain["notes"] = tuple(plain["notes"])
    return Trace(**plain)


def clients_of(text: str) -> Clients:
    """The clients' habits again."""
    return Clients(**json.loads(text))
