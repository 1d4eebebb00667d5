"""Depth over time against the thresholds: as SVG for a file, and in block characters for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from broker.manage.advise.candidates import Candidate, CandidateResults, Trial
from broker.manage.advise.replay import Outcome
from broker.units import KB, MB, format_size

BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#@"

# A panel of the SVG, and where the drawing stands in it.
WIDTH, HEIGHT = 380, 190
LEFT, TOP, RIGHT, BOTTOM = 58, 44, 12, 24
ACROSS = 3
INK, FAINT, DEPTH, SHUT, STOP, RESUME, CHOSEN = (
    *("#222222", "#888888", "#3b6ea8", "#f3d6d2", "#b3261e", "#2e7d32", "#c77700"),
)


def series(outcome: Outcome, by_size: bool) -> Sequence[int]:
    """The depths to draw, in the unit that matters."""
    return outcome.depth_bytes if by_size else outcome.depth


def stop_of(candidate: Candidate, by_size: bool) -> int:
    """The stop threshold in that unit; 0 is none."""
    return candidate.flow_stop_size if by_size else candidate.flow_stop_count


def resume_of(candidate: Candidate, by_size: bool) -> int:
    """The resume threshold in that unit; equal to stop where it is not set."""
    resume = candidate.flow_resume_size if by_size else candidate.flow_resume_count
    return resume or stop_of(candidate, by_size)


def amount(value: int, by_size: bool) -> str:
    """A depth as it is shown."""
    if not by_size:
        return f"{value:,}"
    if value < KB or value % KB == 0:
        return format_size(value)
    return f"{value / MB:,.1f} MB" if value >= MB else f"{value / KB:,.1f} KB"


# --- for a terminal


def spark(values: Sequence[int], top: int, width: int, ramp: str = BLOCKS) -> str:
    """One line, a character for the greatest depth of its part of the time."""
    return "".join(ramp[_level(value, top, len(ramp) - 1)] for value in squeeze(values, width))


def chart(trial: Trial, by_size: bool, width: int = 72, height: int = 8, ramp: str = BLOCKS) -> str:
    """Depth over time with the thresholds beside it and below it the time the gate was closed."""
    candidate, outcome = trial.candidate, trial.outcome
    values = squeeze(series(outcome, by_size), width)
    stop, resume = stop_of(candidate, by_size), resume_of(candidate, by_size)
    top = max(stop, *values, 1)
    full = len(ramp) - 1
    labels = _labels(top, stop, resume, height, by_size)
    margin = max(map(len, labels))
    lines = []
    for row in range(height - 1, -1, -1):
        cells = (min(max(value * height * full // top - row * full, 0), full) for value in values)
        lines.append(f"{labels[row]:>{margin}} |" + "".join(ramp[cell] for cell in cells).rstrip())
    shut = "".join(ramp[min(round(part * full), full)] for part in _mean(outcome.closed, width))
    lines.append(f"{'closed':>{margin}} |{shut.rstrip()}")
    lines.append(f"{'':>{margin}}  0 s{f'{outcome.seconds:,.1f} s':>{max(width - 3, 8)}}")
    return "\n".join(lines)


def _labels(top: int, stop: int, resume: int, height: int, by_size: bool) -> list[str]:
    """What stands beside each row, the lowest first."""
    labels = [""] * height
    labels[height - 1] = amount(top, by_size)
    if stop:
        labels[min(resume * height // top, height - 1)] = f"resume {amount(resume, by_size)}"
        labels[min(stop * height // top, height - 1)] = f"stop {amount(stop, by_size)}"
    return labels


def squeeze(values: Sequence[int], width: int) -> list[int]:
    """The greatest of each part."""
    count = len(values)
    return [
        max(values[i * count // width : max((i + 1) * count // width, i * count // width + 1)])
        for i in range(width)
    ]


def _mean(values: Sequence[float], width: int) -> list[float]:
    count = len(values)
    parts = [
        values[i * count // width : max((i + 1) * count // width, i * count // width + 1)]
        for i in range(width)
    ]
    return [sum(part) / len(part) for part in parts]


def _level(value: int, top: int, full: int) -> int:
    return min(-(-value * full // top), full) if top > 0 else 0


# --- for a file


def svg(advice: CandidateResults) -> str:
    """One panel for each candidate, the recommended one marked."""
    rows = -(-len(advice.trials) // ACROSS)
    width, height = ACROSS * WIDTH + 20, rows * HEIGHT + 74
    title = f"{advice.trace.node}: depth under {len(advice.trials)} candidate settings"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="20" y="26" font-size="16">{escape(title)}</text>',
        f'<text x="20" y="44" fill="{FAINT}">blue: depth; red line: stop; green line: resume; shaded:'
        f" producers stopped; outlined: recommended. Without thresholds the depth would reach"
        f" {amount(_worst(advice.unlimited, advice.by_size), advice.by_size)}.</text>",
    ]
    for number, trial in enumerate(advice.trials):
        x, y = 10 + number % ACROSS * WIDTH, 56 + number // ACROSS * HEIGHT
        parts.append(f'<g transform="translate({x},{y})">{_panel(trial, advice)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _worst(outcome: Outcome, by_size: bool) -> int:
    return outcome.worst_bytes if by_size else outcome.worst_msgs


def _panel(trial: Trial, advice: CandidateResults) -> str:
    by_size, outcome, candidate = advice.by_size, trial.outcome, trial.candidate
    values = series(outcome, by_size)
    stop, resume = stop_of(candidate, by_size), resume_of(candidate, by_size)
    top = max(stop, *values, 1) * 1.08
    inner_w, inner_h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(value: float) -> float:
        return round(TOP + inner_h * (1 - value / top), 1)

    step = inner_w / len(values)
    points = " ".join(
        f"{LEFT + i * step:.1f},{at(v)} {LEFT + (i + 1) * step:.1f},{at(v)}" for i, v in enumerate(values)
    )
    floor, end = TOP + inner_h, LEFT + inner_w
    found = [
        *_shut(outcome, step, inner_h),
        f'<polygon fill="{DEPTH}" fill-opacity="0.55" points="{LEFT},{floor} {points} {end},{floor}"/>',
        *(_line(at(stop), STOP, f"{amount(stop, by_size)}") if stop else []),
        *(_line(at(resume), RESUME, f"{amount(resume, by_size)}") if stop and resume < stop else []),
        f'<rect x="{LEFT}" y="{TOP}" width="{inner_w}" height="{inner_h}" fill="none" stroke="{FAINT}"/>',
        f'<text x="{LEFT}" y="14" font-weight="bold">{escape(heading(trial, by_size))}</text>',
        f'<text x="{LEFT}" y="30">{escape(figures(outcome, by_size))}</text>',
        f'<text x="{LEFT}" y="{floor + 14}" fill="{FAINT}">0 s</text>',
        f'<text x="{end}" y="{floor + 14}" fill="{FAINT}" text-anchor="end">{outcome.seconds:,.1f} s</text>',
    ]
    if trial is advice.best:
        found.append(
            f'<rect x="2" y="0" width="{WIDTH - 4}" height="{HEIGHT - 6}" rx="6" fill="none"'
            f' stroke="{CHOSEN}" stroke-width="2.5"/>'
        )
    return "".join(found)


def _shut(outcome: Outcome, step: float, height: int) -> list[str]:
    """The columns in which the gate was closed, as dark as the part of them."""
    return [
        f'<rect x="{LEFT + i * step:.1f}" y="{TOP}" width="{step:.2f}" height="{height}" fill="{SHUT}"'
        f' fill-opacity="{part:.2f}" shape-rendering="crispEdges"/>'
        for i, part in enumerate(outcome.closed)
        if part > 0.005
    ]


def _line(y: float, colour: str, label: str) -> list[str]:
    return [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"'
        f' stroke="{colour}" stroke-dasharray="5 3"/>',
        f'<text x="{LEFT - 4}" y="{y + 4}" fill="{colour}" text-anchor="end">{label}</text>',
    ]


def heading(trial: Trial, by_size: bool) -> str:
    """The settings in a few words."""
    candidate = trial.candidate
    words = [f"stop {amount(stop_of(candidate, by_size), by_size)}"]
    words.append(f"resume {amount(resume_of(candidate, by_size), by_size)}")
    default = Candidate()
    if candidate.producer_window != default.producer_window:
        words.append(f"window {candidate.producer_window:,}")
    if candidate.consumer_flow_limit != default.consumer_flow_limit:
        words.append(f"consumers {candidate.consumer_flow_limit:,}")
    return ", ".join(words) + (" (as recorded)" if trial.observed else "")


def figures(outcome: Outcome, by_size: bool) -> str:
    """What it would have done in a few words."""
    return (
        f"stopped {outcome.stop_seconds:,.1f} s in {outcome.stops:,} times, {outcome.throughput:,.0f} msg/s,"
        f" worst {amount(_worst(outcome, by_size), by_size)}"
    )
