"""Send the 336,776 rows of the flights table through a queue that holds no more than its policy says.

A producer sends every row to ADDRESS as fast as the broker lets it, while a consumer takes --slow-rate
a second for --slow-for and then as many as it can. Wants a running broker whose policy limits ADDRESS;
policies/example.yaml does. Exit status 1 if a row was lost, doubled, altered or out of order, or if the
queue was ever deeper than its stop threshold.
"""

from __future__ import annotations

import argparse
import sys
import time

from broker.cli.terminal import arguments
from broker.errors import SluiceError
from examples.flights import table
from examples.flights.show import ADDRESS, SLOW_RATE, SLOW_S, Look, Outcome, Plan, run

REFUSED, INTERRUPTED = 1, 130
TELL_EVERY_S = 2.0  # where there is no terminal to redraw a line on


def parser() -> argparse.ArgumentParser:
    """The command line."""
    given = argparse.ArgumentParser(
        prog="python -m examples.flights",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_broker(given)
    given.add_argument("--address", default=ADDRESS, help="the queue (%(default)s)")
    given.add_argument(
        "--rows", type=arguments.count, default=table.ROWS, metavar="N", help="only the first N (all)"
    )
    given.add_argument(
        "--slow-rate", type=arguments.rate, default=SLOW_RATE, metavar="N", help="rows a second (%(default)g)"
    )
    given.add_argument(
        "--slow-for",
        type=arguments.duration,
        default=SLOW_S,
        metavar="DURATION",
        help="seconds (%(default)g)",
    )
    return given


class Teller:
    """Progress on stderr: one line redrawn on a terminal, a line now and then elsewhere."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._live = sys.stderr.isatty()
        self._next_s = 0.0

    def __call__(self, look: Look) -> None:
        """Tells of a look at the queue."""
        if not self._live and time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + TELL_EVERY_S
        state = "stopped" if look.stopped else "open"
        line = (
            f"{look.received:>9,} in  {look.accepted:>9,} out  depth {look.depth:>5,} of {look.stop:,}"
            f"  {state:<7}  stopped {look.stopped_count:,} times"
        )
        print(f"\r\x1b[K{line}" if self._live else line, end="" if self._live else "\n", file=sys.stderr)
        sys.stderr.flush()

    def end(self) -> None:
        """Leaves the line that was redrawn."""
        if self._live:
            print(file=sys.stderr)


def told(outcome: Outcome) -> str:
    """What happened, a line a subject."""
    sent, received, last = outcome.sent, outcome.received, outcome.looks[-1]
    once = "exactly once and in order" if not outcome.failures else "but see below"
    lines = {
        "sent": f"{sent.rows:,} rows, {sent.accepted:,} accepted, in {sent.seconds:.1f} s",
        "received": f"{received.rows:,} rows, {once}",
        "at first": _paced(received.slow_rows, received.slow_s),
        "freely": _paced(received.rows - received.slow_rows, received.free_s),
        "depth": f"peak {last.peak:,} of flow_stop_count {last.stop:,}; "
        f"deepest of {len(outcome.looks):,} looks {outcome.deepest_look:,}",
        "flow": f"flowStoppedCount {outcome.stops:,}, stopped {outcome.stopped_s:.1f} s in all",
        "producer": f"blocked without credit {sent.blocked_s:.1f} s of {sent.seconds:.1f} s",
    }
    return "\n".join(
        [f"{name:<9} {text}" for name, text in lines.items()]
        + [f"FAILED: {text}" for text in outcome.failures]
    )


def _paced(rows: int, seconds: float) -> str:
    return f"{rows:,} in {seconds:.1f} s" + (f", {rows / seconds:,.0f}/s" if seconds > 0 else "")


def main() -> int:
    """Runs it and prints what happened."""
    args = parser().parse_args()
    plan = Plan(args.broker, args.address, args.rows, args.slow_rate, args.slow_for)
    teller = Teller(plan)
    try:
        outcome = run(plan, teller)
    except SluiceError as error:
        print(f"flights: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        teller.end()
    print(told(outcome))
    return REFUSED if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
