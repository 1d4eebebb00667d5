"""One answer of those of several cells. Pure: cells' numbers and what they said go in, JSON comes out."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from heapq import merge
from typing import Any

from broker.manage.ordering import ordered

Row = dict[str, Any]
Said = Mapping[int, Any]

# Of the broker's figures these are the reached cell's own; others that are numbers are added up.
OWN = frozenset({"pid", "cluster_epoch", "policy_files"})
# What a cell is told apart by in the list of cells.
OF_A_CELL = (
    *("pid", "uptime_s", "connections", "producers", "consumers", "queues", "topics", "subscriptions"),
    *("depth_msgs", "depth_bytes", "rate_in", "rate_out", "stopped_nodes", "blocked_producers"),
    *("memory_bytes", "storeState", "storeReason"),
)
# From the best to the worst.
STORE_STATES = ("none", "writing", "full", "failed")


def broker(said: Said, absent: Mapping[int, str], own: int) -> Row:
    """Add up the figures of the cells that answered; ``cells`` has some of each, and why one has none."""
    first = said[own] if own in said else next(iter(said.values()))
    found = {name: _sum(name, first[name], [each.get(name) for each in said.values()]) for name in first}
    worst = max(said, key=lambda cell: STORE_STATES.index(str(said[cell].get("storeState", "none"))))
    found["storeState"] = said[worst].get("storeState")
    reason = said[worst].get("storeReason", "")
    found["storeReason"] = f"cell {worst}: {reason}" if reason else ""
    for name in ("deadlocks", "set_aside"):
        found[name] = [{**row, "cell": cell} for cell in sorted(said) for row in said[cell].get(name, ())]
    found["uptime_s"] = max(each.get("uptime_s", 0) for each in said.values())
    known = {
        cell: {"cell": cell, **{name: row.get(name) for name in OF_A_CELL}} for cell, row in said.items()
    }
    gone = {cell: {"cell": cell, "error": reason} for cell, reason in absent.items()}
    found["cells"] = [row for _, row in sorted({**known, **gone}.items())]
    return found


def _sum(name: str, first: Any, values: list[Any]) -> Any:
    if name in OWN or isinstance(first, (str, type(None))):
        return first
    if isinstance(first, bool):
        return all(values)
    if isinstance(first, (int, float)):
        return sum(value for value in values if isinstance(value, (int, float)))
    if isinstance(first, list):
        return _union(values)
    return first


def _union(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += [each for each in value if each not in found]
    return found


def listed(name: str, *, with_cell: bool = False) -> Callable[[Said], Row]:
    """Return what joins the lists of that name: each value once, or all of them, each with its cell."""

    def joined(said: Said) -> Row:
        if not with_cell:
            return {name: _union(said[cell].get(name, ()) for cell in sorted(said))}
        return {name: [{**row, "cell": cell} for cell in sorted(said) for row in said[cell].get(name, ())]}

    return joined


def levels(said: Said) -> Row:
    """Return the levels of any cell: they were changed in all."""
    found: Row = next(iter(said.values()))
    return found


def history(said: Said) -> Row:
    """Add up what came in and went out, second by second, as far back as any cell remembers.

    Cells look at different moments of a second: to each row of the cell that remembers most the nearest one
    of every other cell is added, none where that is more than a second away.
    """
    base = max(said, key=lambda cell: len(said[cell]["rows"]))
    others = [said[cell]["rows"] for cell in said if cell != base and said[cell]["rows"]]
    times = [[row["time"] for row in rows] for rows in others]
    found = []
    for row in said[base]["rows"]:
        near = [rows[_nearest(at, row["time"])] for rows, at in zip(others, times, strict=True)]
        added = [row, *(each for each in near if abs(each["time"] - row["time"]) <= 1)]
        rates = {name: round(sum(each[name] for each in added), 3) for name in ("rate_in", "rate_out")}
        found.append({"time": row["time"], **rates})
    return {"interval_s": 1, "rows": found}


def _nearest(times: list[float], time: float) -> int:
    """Return the place of the nearest of these, which rise."""
    after = bisect_left(times, time)
    around = (at for at in (after - 1, after) if 0 <= at < len(times))
    return min(around, key=lambda at: abs(times[at] - time))


def events(said: Said, count: int) -> list[Row]:
    """Merge events by their time, each with its cell, and keep the last so many."""
    marked = [[{**event, "cell": cell} for event in said[cell]] for cell in sorted(said)]
    return list(merge(*marked, key=lambda event: str(event["time"])))[-count:] if count else []


MERGES: Mapping[str, Callable[[Said], Row]] = {
    "holds": listed("holds"),
    "nodes": listed("nodes"),
    "changed": listed("changed"),
    "levels": levels,
    "answers": listed("answers", with_cell=True),
    "deadlocks": listed("deadlocks", with_cell=True),
    "history": history,
}


def page(
    keys: Mapping[int, list[tuple[Any, str]]], sort: str, offset: int, limit: int
) -> tuple[list[tuple[int, str]], int]:
    """Return the cell and identity of each item of a page, and how many items there are in all cells.

    ``keys`` has each cell's sort keys and identities.
    """
    attribute, downwards = sort.removeprefix("-"), sort.startswith("-")
    all_of = [
        (cell if attribute == "cell" else key, cell, name)
        for cell in sorted(keys)
        for key, name in keys[cell]
    ]
    found = ordered(all_of, lambda each: each[0], downwards)
    return [(cell, name) for _, cell, name in found[offset : offset + limit]], len(all_of)


def metrics(texts: Mapping[int, bytes], absent: Mapping[int, str]) -> list[bytes]:
    """Merge pages of metrics: a family has its HELP and TYPE once, then the samples of all cells.

    The samples bear the label `cell` already.
    """
    families: dict[bytes, list[bytes]] = {}
    for cell in sorted(texts):
        # Only at the beginning of a line: a queue may be called so.
        for part in (b"\n" + texts[cell].rstrip()).split(b"\n# HELP ")[1:]:
            name = part[: part.index(b" ")]
            begun = families.get(name)
            if begun is None:
                families[name] = [b"# HELP ", part, b"\n"]
                continue
            _help, _type, *samples = part.split(b"\n", 2)
            if samples:
                begun += [samples[0], b"\n"]
    up = {**dict.fromkeys(texts, 1), **dict.fromkeys(absent, 0)}
    lines = [f'sluice_cell_up{{cell="{cell}"}} {value}\n' for cell, value in sorted(up.items())]
    head = "# HELP sluice_cell_up 1 while the cell answers\n# TYPE sluice_cell_up gauge\n"
    return [(head + "".join(lines)).encode(), *(each for parts in families.values() for each in parts)]


def encoded(content: object) -> bytes:
    """Return JSON as the API writes it."""
    return json.dumps(content).encode() + b"\n"
