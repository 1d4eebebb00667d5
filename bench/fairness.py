"""How evenly producers of all rhythms share a queue's room: ``python -m bench.fairness [--svg FILE]``.

Each cell is one run in simulated time (rhythms.py), without its first third: a window grows with each use.
*Worst* is what the worst-off producer got of its max-min share of what the consumer takes and the threshold
allows at a tick, *Jain* is the index over all of them, *of the most* what all of them sent of what max-min
fair sharing would have let them send.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.rhythms import Cell, Outcome, Rhythm, play

# The drawing's numbers, in pixels.
ROW, LEFT, WIDTH = 18, 330, 400


def cells() -> Iterator[Cell]:
    """The matrix: ticks, bursts, counts, thresholds, consumers, clients that hear late."""
    for timed in (False, True):
        when = "at ticks" if timed else "on credit"
        for tick_ms in (1, 10, 100, 1000, 10_000):
            seconds = max(15, tick_ms / 1000 * 30)
            yield Cell(
                [Rhythm(50, tick_ms, timed)] * 3,
                _stop(100),
                seconds=seconds,
                name=f"3 × 50/s every {tick_ms} ms, {when}",
            )
        for drain in (70, 140):
            yield Cell(
                [Rhythm(50, 100, timed)] * 3, _stop(100), drain, name=f"3 × 50/s, {drain}/s taken, {when}"
            )
        for count in (2, 20, 200):
            for stop in (2, 100, 1000, 100_000):
                budgets_in_demand = stop < count
                yield Cell(
                    [Rhythm(1000 / count, 100, timed)] * count,
                    _stop(stop),
                    100 if budgets_in_demand else 0,
                    # Where each gets a message in two seconds or ten, one of few would say nothing.
                    seconds=300 if budgets_in_demand and count == 200 else 15,
                    name=f"{count} × {1000 // count}/s, stop {stop:,}, {when}",
                )
        for burst in (1, 50, 2000):
            yield Cell(
                [Rhythm(burst, 1000, timed)] * 3,
                _stop(1000),
                seconds=30,
                name=f"3 × {burst} a second at once, {when}",
            )
        mix = [Rhythm(rate, 100, timed) for rate in (150, 80, 20)]
        for drain in (0, 100):
            yield Cell(
                mix, _stop(900), drain, seconds=30, name=f"150, 80 and 20/s, {drain or 'all'} taken, {when}"
            )
        yield Cell(
            [Rhythm(50, 100, timed)] * 3, {"flow_stop_size": 10_000}, 70, name=f"in bytes, 70/s taken, {when}"
        )
        for late in (5, 50, 200):
            yield Cell(
                [Rhythm(50, 100, timed)] * 3,
                _stop(100),
                round_trip_ms=late,
                name=f"round trip {late} ms, {when}",
            )
        yield Cell(
            [Rhythm(1e4, 0), *[Rhythm(50, 100, timed)] * 3],
            _stop(100),
            300,
            name=f"3 × 50/s beside a busy one, {when}",
        )
        for drain in (0, 100):
            taken = f"{drain or 'all'} taken, {when}"
            for room in ("memory", "disk", "connection"):
                if room == "connection" and drain:
                    continue
                for queues in (1,) if room == "connection" else (1, 2):
                    name = f"{room}: 100, {queues} queue{'s' * (queues - 1)}, {taken}"
                    yield Cell(mix, {}, drain, room=room, budget=100, queues=queues, seconds=30, name=name)
            yield Cell(mix, _stop(100), drain, room="topic", seconds=30, name=f"3 subscriptions, {taken}")
        yield Cell(
            [Rhythm(20, 100, timed)] * 10, _stop(100), 100, churn_ms=5000, seconds=30,
            name=f"links that live 5 s, {when}",
        )  # fmt: skip


def _stop(count: int) -> dict[str, object]:
    return {"flow_stop_count": count, "flow_resume_count": max(count // 2, 1)}


def settled(cell: Cell) -> Outcome:
    """A run's last two thirds."""
    begun = play(replace(cell, seconds=cell.seconds / 3))
    whole = play(cell)
    return replace(
        whole,
        sent=[after - before for after, before in zip(whole.sent, begun.sent, strict=True)],
        share=[after - before for after, before in zip(whole.share, begun.share, strict=True)],
    )


def picture(rows: list[tuple[Cell, Outcome]]) -> str:
    """Bars: what the worst-off producer of each cell got of its share."""
    height = ROW * (len(rows) + 1)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{height}">']
    parts.append("<style>text{font:12px sans-serif}</style>")
    for number, (cell, outcome) in enumerate(rows):
        y = ROW * number
        worst = min(outcome.worst, 1.0)
        colour = "#2a7" if worst >= 0.9 else "#c33"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{cell.name}</text>')
        parts.append(
            f'<rect x="{LEFT}" y="{y + 2}" width="{worst * WIDTH:.0f}" height="{ROW - 4}" fill="{colour}"/>'
        )
        parts.append(f'<text x="{LEFT + WIDTH + 8}" y="{y + 13}">{outcome.worst:.2f}</text>')
    at = LEFT + 0.9 * WIDTH
    parts.append(
        f'<line x1="{at}" x2="{at}" y1="0" y2="{height - ROW}" stroke="#000" stroke-dasharray="3"/></svg>'
    )
    return "\n".join(parts)


def main() -> None:
    """Run the matrix and print it."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    asked.add_argument("--svg", type=Path, help="draw it into this file")
    svg = asked.parse_args().svg
    rows = []
    print("| cell | worst | Jain | of the most | overshoot | flow frames a message |")
    print("| --- | --- | --- | --- | --- | --- |")
    for cell in cells():
        outcome = settled(cell)
        rows.append((cell, outcome))
        most = sum(outcome.sent) / sum(outcome.share)
        frames = outcome.frames / max(sum(outcome.sent), 1)
        shown = f"{outcome.worst:.2f} | {outcome.jain:.3f} | {most:.2f} | {outcome.overshoot} | {frames:.2f}"
        print(
            f"| {cell.name} | {shown} |",
            flush=True,
        )
    if svg is not None:
        svg.write_text(picture(rows))


if __name__ == "__main__":
    main()
