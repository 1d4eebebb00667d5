"""How far the simulator's stop-seconds are from measured ones: ``python -m bench.advise [--write]``.

Every shape of load (shapes.py) is recorded on a real broker twice, under two pairs of thresholds. Each
history is replayed with the settings it was recorded under, and with the other's, which is compared with
what was measured there. ``--write`` puts the table into docs/advise.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.contenders import OURS, BenchError, Contender, free_port
from bench.shapes import SHAPES, running
from broker.errors import SluiceError
from broker.manage.advise.candidates import Candidate, explain
from broker.manage.advise.demand import recover
from broker.manage.advise.history import read
from broker.manage.advise.replay import replay
from broker.manage.advise.trace import Trace

RTT_NS = 200_000  # loopback
SECONDS = 15.0
PAGE = Path(__file__).parent.parent / "docs" / "advise.md"
ADDRESS = "advise"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

TIGHT = Candidate(flow_stop_count=1000, flow_resume_count=700)
WIDE = Candidate(flow_stop_count=4000, flow_resume_count=1000)
TIGHT_BYTES = Candidate(flow_stop_size=2 << 20, flow_resume_size=1 << 20)
WIDE_BYTES = Candidate(flow_stop_size=8 << 20, flow_resume_size=2 << 20)


@dataclass(frozen=True, slots=True)
class Compared:
    """One prediction beside what was measured."""

    shape: str
    recorded: Candidate
    asked: Candidate
    seconds: float
    measured_s: float
    predicted_s: float
    measured_stops: int
    predicted_stops: int
    measured_rate: float
    predicted_rate: float
    worst: int

    @property
    def error_part(self) -> float:
        """How far the prediction is off, as a part of the whole time."""
        return abs(self.predicted_s - self.measured_s) / self.seconds


def pairs(shape: str) -> tuple[Candidate, Candidate]:
    """The two settings a shape is recorded under."""
    return (TIGHT_BYTES, WIDE_BYTES) if shape.startswith("sizes") else (TIGHT, WIDE)


def record(shape: str, candidate: Candidate, seconds: float, keep: Path | None) -> Trace:
    """The load recovered from a run on a broker of its own. BenchError if it wrote no history."""
    with _broker(candidate).started() as broker, running(broker.url, ADDRESS, shape, seconds):
        time.sleep(seconds + 0.2)
        data = broker.directory / "data"
        file = data / "events.jsonl"
        if not file.exists():
            raise BenchError(f"the broker wrote no history: {file}")
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / _file(shape, candidate)).write_bytes(file.read_bytes())
        return recover(read([str(data)]).nodes[ADDRESS])


def _file(shape: str, candidate: Candidate) -> str:
    stop = candidate.flow_stop_count or candidate.flow_stop_size
    return f"{shape.replace(' ', '-').replace(',', '')}-{stop}.jsonl"


def _broker(candidate: Candidate) -> Contender:
    lines = [f"    {name}: {value}" for name in candidate.__slots__ if (value := getattr(candidate, name))]
    text = "\n".join(["policies:", '  - match: "advise"', *lines]) + "\n"

    def command(port: int, directory: Path) -> list[str]:
        (directory / "policy.yaml").write_text(text)
        return [
            *(sys.executable, "-m", "broker.cli.main", "serve", "--listen", f"amqp://127.0.0.1:{port}"),
            *("--http", f"127.0.0.1:{free_port()}", "--policies", str(directory / "policy.yaml")),
            *("--data", str(directory / "data")),
        ]

    return replace(OURS, command=command)


def compared(shape: str, seconds: float, keep: Path | None, kept: Path | None = None) -> list[Compared]:
    """Both recordings, new ones or those that were ``kept``, each replayed under both settings."""
    traces = {
        candidate: recover(read([str(kept / _file(shape, candidate))]).nodes[ADDRESS])
        if kept
        else record(shape, candidate, seconds, keep)
        for candidate in pairs(shape)
    }
    return [
        _compared(shape, recorded, asked, trace, traces[asked])
        for recorded, trace in traces.items()
        for asked in traces
    ]


def _compared(
    shape: str, recorded: Candidate, asked: Candidate, trace: Trace, measured_on: Trace
) -> Compared:
    was = measured_on.measured
    assert was is not None
    outcome = replay(trace, asked.settings(), explain(trace, RTT_NS))
    # Two runs are not of quite the same length: what was measured, as if it had been as long.
    scale = trace.seconds / measured_on.seconds
    return Compared(
        shape,
        recorded,
        asked,
        trace.seconds,
        was.stop_seconds * scale,
        outcome.stop_seconds,
        was.stops,
        outcome.stops,
        was.settled / measured_on.seconds,
        outcome.throughput,
        outcome.overshoot_msgs,
    )


def _named(candidate: Candidate) -> str:
    if candidate.flow_stop_size:
        return f"{candidate.flow_stop_size >> 20} MB / {candidate.flow_resume_size >> 20} MB"
    return f"{candidate.flow_stop_count:,} / {candidate.flow_resume_count:,}"


def table(found: Sequence[Compared]) -> str:
    """The table of the documentation, and what it comes to."""
    head = (
        "| load | recorded under | asked for | s | stopped s: measured | predicted | off by | stops | msg/s |"
    )
    lines = [head, "|---|---|---|---:|---:|---:|---:|---:|---:|"]
    for each in found:
        lines.append(
            f"| {each.shape} | {_named(each.recorded)} | {_named(each.asked)} | {each.seconds:.1f}"
            f" | {each.measured_s:.2f} | {each.predicted_s:.2f} | {each.error_part:.1%}"
            f" | {each.measured_stops:,} → {each.predicted_stops:,}"
            f" | {each.measured_rate:,.0f} → {each.predicted_rate:,.0f} |"
        )
    same = [each.error_part for each in found if each.recorded == each.asked]
    other = [each.error_part for each in found if each.recorded != each.asked]
    lines += ["", *(_sum("the same settings", same)), *(_sum("the other settings", other))]
    return "\n".join(lines)


def _sum(title: str, parts: Sequence[float]) -> list[str]:
    if not parts:
        return []
    return [
        f"- {title}: {len(parts)} predictions, off by {median(parts):.1%} (median), {max(parts):.1%} (most)"
    ]


def write(text: str) -> None:
    """Put the table between the marks of the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> int:
    """Records, replays, prints; exit status 1 if a shape could not be recorded."""
    parser = argparse.ArgumentParser(prog="python -m bench.advise", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help=f"of each run ({SECONDS:g})"
    )
    parser.add_argument("--only", action="append", choices=SHAPES, help="only this shape (may be repeated)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the histories there")
    parser.add_argument("--kept", type=Path, metavar="DIR", help="replay those there, record nothing")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    args = parser.parse_args()
    found: list[Compared] = []
    for shape in args.only or SHAPES:
        try:
            found += compared(shape, args.seconds, args.keep, args.kept)
        except (BenchError, SluiceError) as error:
            print(f"{shape}: {error}", file=sys.stderr)
            return 1
        print(f"{shape}: {', '.join(f'{each.error_part:.1%}' for each in found[-4:])}", file=sys.stderr)
    print(table(found))
    if args.write:
        write(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
