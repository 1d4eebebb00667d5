"""The pictures of docs/concepts.md: ``python -m bench.pictures`` draws them into ``docs/images``.

``gate.svg`` is a recording of a real broker, read every few milliseconds while ``sluice send`` fills a
queue and ``sluice receive`` drains it. The others are drawings of what stands where.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from subprocess import DEVNULL
from typing import cast

from bench.contenders import OURS, Running
from broker.client.request import Management

IMAGES = Path("docs/images")
STOP, RESUME, COUNT = 900, 500, 6000
SEND_RATE, RECEIVE_RATE = 5000, 2000
EVERY_S = 0.004
INK, FAINT, BLUE, RED, GREEN, SHUT, ROOM = (
    *("#222222", "#888888", "#0072b2", "#b3261e", "#2e7d32", "#f3d6d2", "#cfe3f2"),
)


@dataclass(frozen=True, slots=True)
class Look:
    """The queue at a moment."""

    seconds: float
    depth: int
    promised: int
    stopped: bool


def record(broker: Running) -> list[Look]:
    """Depth and gate from the first message until the queue is empty again."""
    serve = [sys.executable, "-m", "broker.cli.main"]
    with Management(broker.url) as management:
        limits = {"flow_stop_count": STOP, "flow_resume_count": RESUME}
        management.call("CREATE", type="org.sluice.queue", name="demo", attributes=limits)
        ends = [
            subprocess.Popen([*serve, *words, "-b", broker.url], stdout=DEVNULL, stderr=DEVNULL)
            for words in (
                ["receive", "demo", "--count", str(COUNT), "--rate", str(RECEIVE_RATE), "--no-output"],
                ["send", "demo", "--count", str(COUNT), "--rate", str(SEND_RATE)],
            )
        ]
        looks: list[Look] = []
        while any(end.poll() is None for end in ends):
            found = management.call("READ", type="org.sluice.queue", name="demo").body
            now = cast("dict[str, int]", found)
            if now["depth_msgs"] or looks:
                looks.append(
                    Look(time.monotonic(), now["depth_msgs"], now["promised_msgs"], bool(now["flowStopped"]))
                )
            time.sleep(EVERY_S)
    begin = looks[0].seconds
    return [Look(each.seconds - begin, each.depth, each.promised, each.stopped) for each in looks]


def gate(looks: Sequence[Look]) -> str:
    """Depth over time, its two lines, and the stopped periods shaded."""
    width, height, left, top = 640, 240, 52, 40
    end, most = looks[-1].seconds, STOP * 1.15
    right, bottom = width - 16, height - 34

    def x(seconds: float) -> float:
        return left + seconds / end * (right - left)

    def y(depth: float) -> float:
        return bottom - depth / most * (bottom - top)

    parts = [
        f'<rect x="{x(one):.1f}" y="{top}" width="{x(two) - x(one):.1f}" height="{bottom - top}"'
        f' fill="{SHUT}"/>'
        for one, two in _stops(looks)
    ]
    for name, value, colour in (("stop", STOP, RED), ("resume", RESUME, GREEN)):
        parts.append(_line(left, y(value), right, y(value), colour, dash="6 4"))
        parts.append(_text(left - 6, y(value) + 4, f"{value}", "end", colour))
        parts.append(
            _text(right, y(value) + 14 * (name == "resume") - 4, f"flow_{name}_count", "end", colour)
        )
    path = " ".join(f"{x(each.seconds):.1f},{y(each.depth):.1f}" for each in looks)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>')
    parts += [_line(left, bottom, right, bottom, INK), _line(left, top, left, bottom, INK)]
    parts += [_text(x(s), bottom + 16, f"{s} s", "middle", FAINT) for s in range(int(end) + 1)]
    parts.append(_text(left, 20, "depth of a queue; shaded: producers have no credit", "start", INK))
    parts.append(_text(left - 6, bottom + 4, "0", "end", FAINT))
    return _svg(width, height, parts, "Depth over time between the resume and the stop line")


def _stops(looks: Sequence[Look]) -> Iterator[tuple[float, float]]:
    """When producers were stopped, from and to."""
    for stopped, some in groupby(looks, key=lambda look: look.stopped):
        span = list(some)
        if stopped:
            yield span[0].seconds, span[-1].seconds


def links() -> str:
    """A producer, a node with its gate, consumers."""
    parts = [
        *_box(14, 60, 110, 50, "producer"),
        *_box(250, 40, 150, 90, "", ROOM),
        _text(325, 62, "queue 'orders'", "middle", INK),
        *[f'<rect x="{264 + 15 * n}" y="78" width="11" height="34" fill="{BLUE}"/>' for n in range(8)],
        _line(252, 40, 252, 130, RED, width=5),
        _text(252, 148, "gate", "middle", RED),
        *_box(520, 22, 106, 44, "consumer"),
        *_box(520, 104, 106, 44, "consumer"),
        *_arrow(124, 76, 246, 76, BLUE, "messages", 68),
        *_arrow(246, 98, 124, 98, GREEN, "credit", 114),
        *_arrow(400, 66, 516, 38, BLUE, "messages", 40),
        *_arrow(516, 54, 404, 82, GREEN, "", 0),
        *_arrow(400, 96, 516, 118, BLUE, "", 0),
        *_arrow(516, 136, 404, 114, GREEN, "credit", 142),
        _text(64, 128, "producer link", "middle", FAINT),
        _text(462, 176, "consumer links", "middle", FAINT),
    ]
    return _svg(640, 190, parts, "Credit goes against the messages, on each link by itself")


def promised() -> str:
    """The room below the stop line as a bar."""
    left, width, top = 20, 600, 50
    shares = ((40, BLUE, "40 queued"), (35, "#56b4e9", "35 promised to A"), (15, "#9ad0f0", "15 to B"))
    parts, at = [], float(left)
    for share, colour, name in shares:
        span = share / 100 * width
        parts.append(f'<rect x="{at:.0f}" y="{top}" width="{span:.0f}" height="46" fill="{colour}"/>')
        parts.append(_text(at + span / 2, top + 28, name, "middle", "#ffffff" if colour == BLUE else INK))
        at += span
    parts.append(_text(at + 30, top + 28, "10 left", "middle", FAINT))
    parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="46" fill="none" stroke="{INK}"/>')
    parts.append(_line(left + width, top - 16, left + width, top + 62, RED, width=3))
    parts.append(_text(left + width, top - 22, "flow_stop_count 100", "end", RED))
    parts.append(_text(left, top + 70, "depth + promised never passes the line", "start", INK))
    return _svg(640, 140, parts, "What is queued and what is promised stay below the stop threshold")


def window() -> str:
    """Unsettled messages of one consumer: up to the limit, down to half, up again."""
    left, right, top, bottom = 52, 620, 30, 150
    limit, half, period = top + 14, (top + 14 + bottom) / 2, 150
    points: list[tuple[float, float]] = [(left, bottom)]
    at = left
    while at + period <= right:
        points += [(at + 8, limit), (at + period, half)]
        at += period
    path = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
    parts = [
        _line(left, limit, right, limit, RED, dash="6 4"),
        _line(left, half, right, half, GREEN, dash="6 4"),
        _text(right, limit - 5, "consumer_flow_limit 1000: nothing more is sent", "end", RED),
        _text(right, half + 16, "consumer_flow_threshold 50 %: 500 more", "end", GREEN),
        f'<polyline points="{path}" fill="none" stroke="{BLUE}" stroke-width="2"/>',
        _line(left, bottom, right, bottom, INK),
        _line(left, top, left, bottom, INK),
        _text(left, 18, "unsettled messages of a consumer that settles one by one", "start", INK),
        _text(left - 6, limit + 4, "1000", "end", RED),
        _text(left - 6, half + 4, "500", "end", GREEN),
        _text(right, bottom + 16, "time", "end", FAINT),
    ]
    return _svg(640, 176, parts, "A window fills at once, is settled one by one, and reopens at half")


def _svg(width: int, height: int, parts: Sequence[str], title: str) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
        f' font-family="sans-serif" font-size="12"><title>{title}</title>'
        f'<rect width="{width}" height="{height}" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def _text(x: float, y: float, text: str, anchor: str, colour: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'


def _line(
    x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "none", width: float = 1.5
) -> str:
    return (
        f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="{colour}"'
        f' stroke-width="{width}" stroke-dasharray="{dash}"/>'
    )


def _box(x: float, y: float, width: float, height: float, text: str, fill: str = "white") -> list[str]:
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{INK}"/>',
        _text(x + width / 2, y + height / 2 + 4, text, "middle", INK),
    ]


def _arrow(x1: float, y1: float, x2: float, y2: float, colour: str, text: str, text_y: float) -> list[str]:
    way = 1 if x2 > x1 else -1
    slope = (y2 - y1) / (x2 - x1)
    wings = [(x2 - way * 9, y2 - way * 9 * slope - 4), (x2 - way * 9, y2 - way * 9 * slope + 4)]
    head = " ".join(f"{x:.0f},{y:.0f}" for x, y in [(x2, y2), *wings])
    return [
        _line(x1, y1, x2 - way * 6, y2 - way * 6 * slope, colour, width=2),
        f'<polygon points="{head}" fill="{colour}"/>',
        _text((x1 + x2) / 2, text_y, text, "middle", colour) if text else "",
    ]


def main() -> None:
    """Draw all of them."""
    with OURS.started() as broker:
        looks = record(broker)
    IMAGES.mkdir(parents=True, exist_ok=True)
    drawn = {"gate": gate(looks), "links": links(), "promised": promised(), "window": window()}
    for name, picture in drawn.items():
        (IMAGES / f"{name}.svg").write_text(picture)
    deepest = max(each.depth for each in looks)
    print(
        f"{len(looks)} looks in {looks[-1].seconds:.1f} s, deepest {deepest}; {', '.join(drawn)} in {IMAGES}"
    )


if __name__ == "__main__":
    main()
