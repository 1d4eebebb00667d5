"""A run as a picture: the stream and Spark's way through it, the queue behind Spark, and every restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from bench.pictures import BLUE, FAINT, GREEN, INK, RED, SHUT, _line, _svg, _text

WIDTH, LEFT, RIGHT = 880, 70, 860
ABOVE, BELOW = (70, 230), (282, 430)
ORANGE = "#c77700"


@dataclass(frozen=True, slots=True)
class Look:
    """Everything at a moment: messages in the stream, offsets that Spark is through with, the queue's depth,
    whether its producers are stopped, rows that the consumer keeps, dead letters."""

    seconds: float
    written: int
    read: int
    depth: int
    stopped: bool
    kept: int
    dead: int


def drawn(looks: Sequence[Look], restarts: Sequence[tuple[float, str]], stop: int) -> str:
    """Two panels over one time."""
    end = looks[-1].seconds

    def x(seconds: float) -> float:
        return LEFT + seconds / end * (RIGHT - LEFT)

    parts = [
        *_curves(
            looks,
            x,
            ABOVE,
            (
                ("written to the stream", ORANGE, lambda look: look.written),
                ("read by Spark", BLUE, lambda look: look.read),
            ),
        ),
        *_stopped(looks, x),
        *_curves(
            looks,
            x,
            BELOW,
            (
                ("depth of the queue", BLUE, lambda look: look.depth),
                ("dead letters", RED, lambda look: look.dead),
            ),
            stop,
        ),
        *_restarts(restarts, x),
        *_times(end, x),
    ]
    return _svg(WIDTH, BELOW[1] + 34, parts, "Flights through a stream, Spark and a queue, with restarts")


Curve = tuple[str, str, Callable[[Look], int]]


def _curves(
    looks: Sequence[Look],
    x: Callable[[float], float],
    panel: tuple[int, int],
    curves: Sequence[Curve],
    stop: int = 0,
) -> Iterator[str]:
    top, bottom = panel
    most = max(stop, *(count(look) for _, _, count in curves for look in looks), 1) * 1.1

    def y(count: float) -> float:
        return bottom - count / most * (bottom - top)

    for number, (name, colour, count) in enumerate(curves):
        points = " ".join(f"{x(look.seconds):.1f},{y(count(look)):.1f}" for look in looks)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield _text(LEFT + 190 * number, top - 10, name, "start", colour)
    if stop:
        yield _line(LEFT, y(stop), RIGHT, y(stop), RED, dash="6 4")
        yield _text(RIGHT, y(stop) - 5, f"flow_stop_count {stop:,}", "end", RED)
    highest = max(count(look) for _, _, count in curves for look in looks)
    yield _text(LEFT - 6, y(highest) + 4, f"{highest:,}", "end", FAINT)
    yield _line(LEFT, bottom, RIGHT, bottom, INK)
    yield _line(LEFT, top, LEFT, bottom, INK)
    yield _text(LEFT - 6, bottom + 4, "0", "end", FAINT)


def _stopped(looks: Sequence[Look], x: Callable[[float], float]) -> Iterator[str]:
    top, bottom = BELOW
    for stopped, some in groupby(looks, key=lambda look: look.stopped):
        span = list(some)
        if stopped:
            wide = max(x(span[-1].seconds) - x(span[0].seconds), 1.0)
            at = f'x="{x(span[0].seconds):.1f}" y="{top}" width="{wide:.1f}" height="{bottom - top}"'
            yield f'<rect {at} fill="{SHUT}"/>'
    yield _text(RIGHT, top - 10, "shaded: Spark gets no credit", "end", FAINT)


def _restarts(restarts: Sequence[tuple[float, str]], x: Callable[[float], float]) -> Iterator[str]:
    for number, (at, what) in enumerate(restarts):
        yield _line(x(at), ABOVE[0] - 30, x(at), BELOW[1], GREEN, dash="2 4", width=1)
        yield _text(x(at) + 3, 20 + 14 * (number % 2), escape(what), "start", GREEN)


def _times(end: float, x: Callable[[float], float]) -> Iterator[str]:
    step = max(round(end / 8), 1)
    for second in range(0, int(end) + 1, step):
        yield _text(x(second), BELOW[1] + 18, f"{second} s", "middle", FAINT)
