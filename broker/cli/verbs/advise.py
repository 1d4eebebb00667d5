"""Try other thresholds and windows on the load a queue has had, and recommend some.

The broker's event history (events.jsonl; a folder stands for all of it, what was rotated included) is run
through the broker's own flow control with another clock. --arrivals and --settles make up a load instead.
Lists are separated by commas; a resume may be a percentage of the stop. docs/advise.md says what is
inferred, and how far predictions were from what was measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli.main import UsageError
from broker.cli.terminal import arguments, table
from broker.cli.terminal.printable import printable
from broker.cli.terminal.progress import ProgressBar
from broker.errors import OperatorError

if TYPE_CHECKING:
    from broker.manage.advise.candidates import CandidateResults, Grid, Trial
    from broker.manage.advise.history import FlowHistory
    from broker.manage.advise.trace import Trace

SPARK = 24
MOST_SECONDS = 7 * 86400.0
MOST_LOAD = 100_000_000
EXAMPLES = (
    ("sluice advise data --node orders", "from the history of a data directory"),
    (
        "sluice advise --arrivals 500:100 --settles 450 --seconds 5s --stop-count 200,400",
        "a load that is made up, two thresholds",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument(
        "history", metavar="HISTORY", nargs="*", help="events.jsonl, or the data directory it is in"
    )
    parser.add_argument("--node", metavar="NAME", help="whose history, where there are several")
    for name, kind, text in (
        ("stop-count", arguments.counts, "flow_stop_count to try"),
        ("resume-count", arguments.resumes, "flow_resume_count to try, or percentages of the stop"),
        ("stop-size", arguments.sizes, "flow_stop_size to try"),
        ("resume-size", arguments.size_resumes, "flow_resume_size to try, or percentages of the stop"),
        ("window", arguments.counts, "producer_window to try"),
        ("consumer-limit", arguments.counts, "consumer_flow_limit to try"),
    ):
        parser.add_argument(f"--{name}", type=kind, default=(), metavar="N[,N...]", help=text)
    parser.add_argument(
        "--rtt", type=arguments.duration, default=0.001, metavar="T", help="round trip to the clients (1 ms)"
    )
    parser.add_argument(
        "--last", type=arguments.duration, metavar="T", help="only the last part of the history"
    )
    load = parser.add_argument_group("a load that is made up")
    load.add_argument(
        "--arrivals", type=_spec, metavar="RATE[:BURST]", help="messages a second, so many at once"
    )
    load.add_argument("--settles", type=_spec, metavar="RATE[:BURST]", help="what consumers can take")
    load.add_argument("--seconds", type=arguments.duration, default=60.0, metavar="T", help="how long (60)")
    load.add_argument(
        "--size", type=arguments.size_above_0, default=1024, metavar="SIZE", help="of a message (1 KB)"
    )
    load.add_argument("--producers", type=arguments.count, default=1, metavar="N", help="(1)")
    load.add_argument("--consumers", type=arguments.count, default=1, metavar="N", help="(1)")
    load.add_argument("--seed", type=arguments.natural, default=0, metavar="N", help="of its chances (0)")
    parser.add_argument("--svg", metavar="FILE", help="draw every candidate's depth into FILE")
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Reads or makes the load, tries the candidates and prints what became of them."""
    trace, notes, hints = _load(args)
    advice = _tried(args, trace)
    if args.svg:
        _draw(args.svg, advice)
    if args.json:
        print(table.as_json(as_object(advice, notes, hints)))
        return 0
    for note in (*notes, *trace.notes):
        print(f"note: {printable(note)}", file=sys.stderr)
    print(told(advice, blocks=_has_blocks()))
    for hint in hints:
        print(f"advice: {printable(hint)}")
    return 0


def _load(args: argparse.Namespace) -> tuple[Trace, list[str], list[str]]:
    made_up = args.arrivals is not None or args.settles is not None
    if bool(args.history) == made_up:
        raise UsageError("name a HISTORY, or --arrivals and --settles")
    if not made_up:
        return _recorded(args)
    if args.arrivals is None or args.settles is None:
        raise UsageError("a load that is made up needs both --arrivals and --settles")
    if not 0 < args.seconds <= MOST_SECONDS or args.seconds * args.arrivals[0] > MOST_LOAD:
        raise UsageError(f"--seconds and --arrivals: more than {MOST_LOAD:,} messages, or no time at all")
    from broker.manage.advise.synthetic import make

    links = {"producers": args.producers, "consumers": args.consumers}
    return make(args.arrivals, args.settles, args.seconds, args.size, seed=args.seed, **links), [], []


def _recorded(args: argparse.Namespace) -> tuple[Trace, list[str], list[str]]:
    """The load, what was passed over, and what should be set otherwise."""
    from broker.manage.advise.demand import recover
    from broker.manage.advise.hints import hints
    from broker.manage.advise.history import HistoryError, read

    try:
        archive = read(args.history)
    except HistoryError as error:
        raise UsageError(str(error)) from error
    history = _chosen(args.node, archive.nodes)
    if args.last is not None:
        history = history.last(args.last)
    return recover(history), archive.notes, hints(history)


def _chosen(name: str | None, nodes: Mapping[str, FlowHistory]) -> FlowHistory:
    """The node meant: the one named, or the only one that had any load."""
    if name is not None and name not in nodes:
        known = ", ".join(map(printable, sorted(nodes))) or "none"
        raise OperatorError(f"the history tells nothing of {printable(name)!r}; of: {known}")
    if name is not None:
        return nodes[name]
    busy = [each for each in nodes.values() if any(sample.received for sample in each.samples)]
    if not busy:
        raise OperatorError("the history is empty: no sample of any node that took in messages")
    if len(busy) > 1:
        known = ", ".join(sorted(printable(each.node) for each in busy))
        raise UsageError(f"the history is of several nodes; say --node with one of: {known}")
    return busy[0]


def _tried(args: argparse.Namespace, trace: Trace) -> CandidateResults:
    from broker.manage.advise.candidates import Grid, advise, explain
    from broker.manage.advise.replay import Clients

    grid: Grid = Grid(
        args.stop_count, args.resume_count, args.stop_size, args.resume_size, args.window, args.consumer_limit
    )
    rtt_ns = round(args.rtt * 1e9)
    if any(grid.stop_counts + grid.resume_counts) and any(grid.stop_sizes + grid.resume_sizes):
        raise UsageError("try thresholds in messages or in bytes, not both at a time")
    clients = Clients(rtt_ns) if trace.measured is None else explain(trace, rtt_ns)
    with ProgressBar("trying candidates", 1000, wanted=not args.json) as bar:
        return advise(
            trace,
            grid,
            clients,
            lambda done, total, part: bar.show(round(1000 * (done + part) / total)),
        )


def _draw(name: str, advice: CandidateResults) -> None:
    from broker.manage.advise.picture import svg

    try:
        Path(name).write_text(svg(advice), encoding="utf-8")
    except OSError as error:
        raise OperatorError(f"{name}: {error.strerror}") from error


# --- printing


def told(advice: CandidateResults, *, blocks: bool) -> str:
    """The load, the table, the picture and the policy, for a reader."""
    from broker.manage.advise import picture
    from broker.manage.advise.candidates import snippet

    ramp = picture.BLOCKS if blocks else picture.PLAIN
    rows = [_row(trial, advice, ramp) for trial in _ordered(advice)]
    best, node = advice.best, printable(advice.trace.node)
    heading, figures = picture.heading(best, advice.by_size), picture.figures(best.outcome, advice.by_size)
    return "\n".join(
        [
            _of_the_load(advice),
            "",
            table.plain(_columns(), rows),
            "",
            f"recommended: {heading}: {figures}",
            "",
            picture.chart(best, advice.by_size, ramp=ramp),
            "",
            f"# sluice config apply FILE; it takes the place of a policy for {node}, if there is one",
            snippet(advice.trace.node, best, by_size=advice.by_size).rstrip(),
        ]
    )


def _of_the_load(advice: CandidateResults) -> str:
    from broker.manage.advise.picture import amount

    trace, unlimited = advice.trace, advice.unlimited
    offered, able = trace.offered.total / trace.seconds, trace.served.total / trace.seconds
    deepest = amount(unlimited.worst_bytes if advice.by_size else unlimited.worst_msgs, advice.by_size)
    lines = [
        f"{printable(trace.node)}: {trace.seconds:,.1f} s, {offered:,.0f} messages offered a second,"
        f" {able:,.0f} could be taken; without thresholds the depth would reach {deepest}"
    ]
    if advice.endless:
        lines.append(
            "the overload lasts to the end: a larger threshold only stops later, so the smallest that keeps"
            " consumers busy is recommended"
        )
    if trace.measured is not None:
        was = trace.measured
        lines.append(
            f"recorded: stopped {was.stop_seconds:,.1f} s, {was.stops:,} times,"
            f" {was.settled / trace.seconds:,.0f} msg/s, worst {was.worst_msgs:,} messages"
        )
    return "\n".join(lines)


def _columns() -> list[table.Column]:
    return [
        table.Column("", ("mark",), show=str, right=False),
        table.number("stop", "stop"),
        table.number("resume", "resume"),
        table.number("window", "producer_window"),
        table.number("consumers", "consumer_flow_limit"),
        table.number("stopped s", "stop_seconds", show=lambda value: f"{value:,.2f}"),
        table.number("stops", "stops"),
        table.number("msg/s", "throughput", show=lambda value: f"{value:,.0f}"),
        table.number("worst depth", "worst"),
        table.number("held back", "held_msgs"),
        table.text("depth", "spark"),
    ]


def _ordered(advice: CandidateResults) -> list[Trial]:
    """By thresholds, then by windows."""
    from broker.manage.advise.picture import resume_of, stop_of

    def place(trial: Trial) -> tuple[int, ...]:
        each = trial.candidate
        thresholds = stop_of(each, advice.by_size), resume_of(each, advice.by_size)
        return (*thresholds, each.producer_window, each.consumer_flow_limit)

    return sorted(advice.trials, key=place)


def _row(trial: Trial, advice: CandidateResults, ramp: str) -> dict[str, object]:
    from broker.manage.advise.picture import amount, resume_of, series, spark, stop_of

    candidate, outcome, by_size = trial.candidate, trial.outcome, advice.by_size
    stop, depths = stop_of(candidate, by_size), series(outcome, by_size)
    mark = "=> " if trial is advice.best else ""
    return {
        "mark": mark + ("recorded" if trial.observed else ""),
        "stop": amount(stop, by_size),
        "resume": amount(resume_of(candidate, by_size), by_size),
        "producer_window": candidate.producer_window,
        "consumer_flow_limit": candidate.consumer_flow_limit,
        "stop_seconds": outcome.stop_seconds,
        "stops": outcome.stops,
        "throughput": outcome.throughput,
        "worst": amount(outcome.worst_bytes if by_size else outcome.worst_msgs, by_size),
        "held_msgs": outcome.held_msgs,
        "spark": spark(depths, max(stop, *depths), SPARK, ramp),
    }


def as_object(advice: CandidateResults, notes: list[str], hints: list[str]) -> dict[str, object]:
    """All of it for programs."""
    from broker.manage.advise.candidates import snippet

    trace = advice.trace
    return {
        "node": trace.node,
        "seconds": trace.seconds,
        "offered_msgs": round(trace.offered.total),
        "could_settle_msgs": round(trace.served.total),
        "peak_rate": round(trace.peak, 1),
        "recorded": None if trace.measured is None else asdict(trace.measured),
        "clients": asdict(advice.clients),
        "endless": advice.endless,
        "unlimited": asdict(advice.unlimited),
        "candidates": [_trial(trial) for trial in advice.trials],
        "recommended": _trial(advice.best),
        "policy": snippet(trace.node, advice.best, by_size=advice.by_size),
        "notes": [*notes, *trace.notes],
        "advice": hints,
    }


def _trial(trial: Trial) -> dict[str, object]:
    return {"settings": asdict(trial.candidate), "recorded": trial.observed, **asdict(trial.outcome)}


def _has_blocks() -> bool:
    try:
        "▁█".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


# --- kinds of value


def _spec(text: str) -> tuple[float, int]:
    """RATE or RATE:BURST."""
    rate, colon, burst = text.partition(":")
    return arguments.rate(rate), arguments.count(burst) if colon else 1
