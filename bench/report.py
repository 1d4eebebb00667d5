"""From figures to a table: medians, ratios, and whether each target was met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.measuring import Figures
from bench.scenarios import TARGETS, Target

# figures[contender][scenario] holds one entry a round
Measured = Mapping[str, Mapping[str, Sequence[Figures]]]


@dataclass(frozen=True, slots=True)
class Line:
    """One target judged; ``passed`` is None where there was nothing to judge."""

    title: str
    ours: float | None
    beside: float | None
    ratio: float | None
    target: str
    passed: bool | None


def lines(measured: Measured) -> list[Line]:
    """Every target that something was measured for."""
    judged = [_line(target, measured) for target in TARGETS]
    return [line for line in judged if line.ours is not None or line.beside is not None]


def _figure(measured: Measured, contender: str, scenario: str, figure: str) -> float | None:
    rounds = measured.get(contender, {}).get(scenario, ())
    return median(figures[figure] for figures in rounds) if rounds else None


def _line(target: Target, measured: Measured) -> Line:
    ours = _figure(measured, "ours", target.scenario, target.figure)
    beside = _beside(measured, target)
    ratio = ours / beside if ours is not None and beside and beside > 0 else None
    bound = target.bound
    if isinstance(bound, str):
        bound = _figure(measured, "ours", *bound.split("."))
    return Line(target.title, ours, beside, ratio, _said(target), _passed(target, ours, bound, ratio))


def _beside(measured: Measured, target: Target) -> float | None:
    if target.beside is not None:
        return _figure(measured, "ours", target.scenario, target.beside)
    return _figure(measured, "bare", target.scenario, target.figure)


def _passed(target: Target, ours: float | None, bound: float | None, ratio: float | None) -> bool | None:
    verdicts = []
    if ours is not None and bound is not None:
        verdicts.append(ours >= bound if target.more_is_better else ours <= bound)
    if ratio is not None and target.least_ratio is not None:
        verdicts.append(ratio >= target.least_ratio)
    return all(verdicts) if verdicts else None


def _said(target: Target) -> str:
    sign = "≥" if target.more_is_better else "≤"
    bound = target.bound
    parts = [] if bound is None else [f"{sign} {'1+1' if isinstance(bound, str) else f'{bound:,}'}"]
    if target.least_ratio is not None:
        parts.append(f"≥ {target.least_ratio:.0%} of {target.beside_is}")
    return ", ".join(parts)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


VERDICT = {True: "pass", False: "FAIL", None: "–"}


def rows(judged: Sequence[Line]) -> list[tuple[str, ...]]:
    """The table's cells, its head first."""
    head = ("measured", "sluice", "beside", "ratio", "target", "")
    body = [
        (
            line.title,
            _number(line.ours),
            _number(line.beside),
            "–" if line.ratio is None else f"{line.ratio:.0%}",
            line.target,
            VERDICT[line.passed],
        )
        for line in judged
    ]
    return [head, *body]


def table(judged: Sequence[Line]) -> str:
    """The table for a terminal."""
    cells = rows(judged)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i in (0, 4) else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )


def markdown(judged: Sequence[Line]) -> str:
    """The table for a page of documentation."""
    head, *body = rows(judged)
    rule = ("---", "---:", "---:", "---:", "---", "---")
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body))
