"""From figures to the page: a table with ratios to ours, and what was run how."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.measuring import Figures
from bench.peers.peer import OURS_TITLE
from bench.peers.scenarios import NO_RATIO, ROWS, TRANSACTED_ROWS, Row

PEERS, TRANSACTIONS = "peers", "peers in transactions"  # the names of the tables' markers
DASH = "–"


@dataclass(slots=True)
class Measured:
    """One broker: the figures of each round, and remarks, which are the reason where there are none."""

    title: str
    version: str
    settings: Sequence[str] = ()
    limit: str = ""
    syncs: str = ""
    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    commit_sync: str = ""

    def figure(self, row: Row) -> float | None:
        """The median of its rounds."""
        known = [
            figures[row.figure] for figures in self.rounds.get(row.scenario, ()) if row.figure in figures
        ]
        return median(known) if known else None


def table(brokers: Sequence[Measured]) -> str:
    """A column each; with ours among them each other figure is followed by how many times ours it is."""
    shown = [
        row
        for row in (*ROWS, *TRANSACTED_ROWS)
        if any(row.scenario in b.rounds or row.scenario in b.remarks for b in brokers)
    ]
    notes = _Notes()
    lines = [
        "| measured | " + " | ".join(broker.title for broker in brokers) + " |",
        "| --- |" + " ---: |" * len(brokers),
    ]
    for row in shown:
        ours = next((broker.figure(row) for broker in brokers if broker.title == OURS_TITLE), None)
        cells = [_cell(broker, row, ours, notes) for broker in brokers]
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, *notes.lines()])


class _Notes:
    """Numbered reasons, each given once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, text: str) -> str:
        return f"<sup>{self._numbers.setdefault(text, len(self._numbers) + 1)}</sup>"

    def lines(self) -> list[str]:
        return ["", *(f"{number}. {text}" for text, number in self._numbers.items())] if self._numbers else []


def _cell(broker: Measured, row: Row, ours: float | None, notes: _Notes) -> str:
    value, reason = broker.figure(row), broker.remarks.get(row.scenario)
    mark = notes.mark(f"{broker.title}: {_line(reason)}") if reason else ""
    if value is None:
        return DASH + mark
    ratio = (
        f" ({_number(value / ours)}×)"
        if ours and broker.title != OURS_TITLE and row.figure not in NO_RATIO
        else ""
    )
    return _number(value) + ratio + mark


def _line(text: str) -> str:
    """On one line and without what markdown would read as a cell or a tag."""
    short = re.sub(r"\s+", " ", text).strip()
    return (short if len(short) <= 240 else "…" + short[-239:]).replace("|", "/").replace("<", "‹")


def _number(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 10 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def ahead(brokers: Sequence[Measured]) -> list[str]:
    """The rates in transactions at which another broker is faster than ours, in words."""
    ours = next((broker for broker in brokers if broker.title == OURS_TITLE), None)
    found = []
    for row in TRANSACTED_ROWS:
        least = ours.figure(row) if ours is not None and row.figure == "rate" else None
        for broker in brokers:
            value = broker.figure(row)
            if least is not None and value is not None and value > least:
                found.append(f"{broker.title}, {row.title.removesuffix(', msg/s')}: {value / least:.2f}×")
    return found


def page(
    brokers: Sequence[Measured], missing: Mapping[str, str], command: str, machine: str, rounds: int
) -> str:
    """All between the markers."""
    parts = [
        *_begun(command, machine, rounds),
        table(brokers),
        "### How each was run",
        *(_how(broker) for broker in brokers),
    ]
    if missing:
        parts += ["### Not measured", _absent(missing)]
    return "\n\n".join(parts)


def transactions_page(
    brokers: Sequence[Measured], missing: Mapping[str, str], command: str, machine: str, rounds: int
) -> str:
    """The same of the transactions: how each broker was run stands beside the other table."""
    # Below the two lines of the table's head.
    lines = table(brokers).splitlines()
    lines.insert(
        2,
        "| a commit's sync, by default | " + " | ".join(each.commit_sync or DASH for each in brokers) + " |",
    )
    faster = ahead(brokers)
    verdict = (
        "Ahead of Sluice: " + "; ".join(faster) if faster else "No broker is ahead of Sluice in any rate"
    )
    parts = [*_begun(command, machine, rounds), "\n".join(lines), verdict + "."]
    return "\n\n".join([*parts, "Not measured:\n\n" + _absent(missing)] if missing else parts)


def _begun(command: str, machine: str, rounds: int) -> list[str]:
    medians = f"Medians of {rounds}, rounds interleaved" if rounds > 1 else "One round"
    return [
        "<!-- not run: a benchmark, minutes long -->",
        f"```console\n{command}\n```",
        f"{machine}. {medians}; in brackets how many times ours.",
    ]


def _absent(missing: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: {_line(reason)}" for name, reason in missing.items())


def _how(broker: Measured) -> str:
    lines = [f"**{broker.title}** {broker.version}", ""]
    lines += [f"- {setting}" for setting in broker.settings]
    lines.append("- limit of 1,000: " + (broker.limit or "none that could be set here"))
    lines.append(f"- durability: {broker.syncs}")
    return "\n".join(lines)


def markers(name: str) -> tuple[str, str]:
    """The lines between which a table stands."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def write(path: Path, text: str, marker: str = PEERS) -> None:
    """Replace what stands between a table's markers; ValueError where there are none."""
    begins, ends = markers(marker)
    before, begin, rest = path.read_text().partition(begins)
    _, end, after = rest.partition(ends)
    if not (begin and end):
        raise ValueError(f"{path} has no markers {begins} and {ends}")
    path.write_text(f"{before}{begins}\n\n{text}\n\n{ends}{after}")
