"""Flights from two producers through a stream of four partitions, Spark and a queue to a consumer.

Spark sums up the delays of each day and destination and gives airports their names; the consumer rejects
rows without a name, and these dead letters are brought back at the end. Meanwhile a producer, the broker,
Spark and the consumer are killed and started again. What the consumer keeps is compared with the same sums
over the table; exit status 1 if they differ. Logs, rows and a picture, flow.svg, stay in --out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.contenders import BenchError
from broker.cli.terminal import arguments
from broker.errors import SluiceError
from examples.flights import table
from examples.streams.show import ROOT, Show

# The flights of January.
ROWS = 27_004


def main(argv: Sequence[str] | None = None) -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=arguments.count, default=ROWS, metavar="N", help="the first N flights")
    parser.add_argument("--pace", type=arguments.duration, default=1.0, metavar="T", help="a day takes (1s)")
    parser.add_argument("--rate", type=arguments.rate, default=100.0, metavar="N", help="rows a second")
    parser.add_argument("--out", type=Path, default=ROOT / "build/jobs/streams", metavar="FOLDER")
    args = parser.parse_args(argv)
    try:
        table.archive()
        failures = Show(args.out, args.rows, args.pace, args.rate).run()
    except (BenchError, SluiceError) as error:
        print(error, file=sys.stderr)
        return 1
    for each in failures:
        print(each, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
