"""``make bench``: the broker against its targets and against the bare loop; exit status 1 if one is missed.

Rounds are interleaved, so that a machine that slows down slows both; every measurement has a process
of its own. Close other programs first: two cores are already one too few.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product

from bench import report, slowdisk
from bench.barelog import natural
from bench.contenders import CONTENDERS, BenchError
from bench.measuring import Figures, Pace
from bench.scenarios import FULL, OURS_ONLY, QUICK, SCENARIOS
from broker.errors import SluiceError


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=natural, metavar="N", help="medians of N (3)")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"of each measurement ({FULL.seconds:g})")
    parser.add_argument("--quick", action="store_true", help="one short round, for a first look")
    parser.add_argument(
        "--only", action="append", choices=SCENARIOS, help="measure only this (may be repeated)"
    )
    parser.add_argument("--contender", action="append", choices=CONTENDERS, help="measure only this one")
    parser.add_argument(
        "--backlog", type=natural, metavar="N", help=f"messages paged out and in ({FULL.paged:,})"
    )
    parser.add_argument(
        "--sync-ms", type=float, metavar="MS", help="as on a disk whose syncs take so much longer"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="every round's figures and the verdicts")
    shape.add_argument("--markdown", action="store_true", help="the table for docs/performance.md")
    return parser.parse_args(words)


def pace_of(args: argparse.Namespace) -> Pace:
    """How long each measurement lasts, and how much it piles up."""
    pace = QUICK if args.quick else FULL
    return replace(pace, seconds=args.seconds or pace.seconds, paged=args.backlog or pace.paged)


def measured(args: argparse.Namespace) -> dict[str, dict[str, list[Figures]]]:
    """Figures by contender and scenario, one entry a round; a failure is told and left out."""
    found: dict[str, dict[str, list[Figures]]] = defaultdict(lambda: defaultdict(list))
    rounds = range(args.rounds or (1 if args.quick else 3))
    for scenario, number, name in product(args.only or SCENARIOS, rounds, args.contender or CONTENDERS):
        if scenario in OURS_ONLY and name != "ours":
            continue
        try:
            with CONTENDERS[name].started() as running:
                figures = SCENARIOS[scenario](running, pace_of(args))
        except (BenchError, SluiceError) as error:
            print(f"{scenario}, {name}: {error}", file=sys.stderr)
            continue
        found[name][scenario].append(figures)
        shown = ", ".join(f"{key} {value:,.{1 if value >= 10 else 2}f}" for key, value in figures.items())
        print(f"{scenario} {number + 1}/{len(rounds)} {name}: {shown}", file=sys.stderr)
    return found


def main() -> int:
    """Measures, prints, and returns 1 if a target was missed or nothing could be measured."""
    args = arguments()
    if args.sync_ms:
        slowdisk.slow(args.sync_ms)
    found = measured(args)
    judged = report.lines(found)
    if args.json:
        print(json.dumps({"rounds": found, "lines": [asdict(line) for line in judged]}, indent=1))
    else:
        print(report.markdown(judged) if args.markdown else report.table(judged))
    return 0 if judged and all(line.passed is not False for line in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
