"""Have the broker log a connection's frames for a while: performatives and fields, never bodies.

The lines are in the broker's log, under `sluice.trace`; `sluice stat -c` shows the connections' ids. With
several cells each counts its own: 2:c12 is that of cell 2.
"""

from __future__ import annotations

import argparse

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable

EXAMPLES = (
    ("sluice trace c12", "its next 1,000 frames, for a minute at most"),
    ("sluice trace c12 --frames 50 --for 5m", "its next 50"),
    ("sluice trace c12 --stop", "enough"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("connection", metavar="CONNECTION", help="its id, such as c3")
    parser.add_argument(
        "--frames", type=arguments.count, default=1000, metavar="N", help="end after so many (%(default)s)"
    )
    parser.add_argument(
        "--for", dest="seconds", type=arguments.duration, default=60.0, metavar="TIME", help="end then (60s)"
    )
    parser.add_argument("--stop", action="store_true", help="end a trace that is under way")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Says what was begun or ended."""
    frames = 0 if args.stop else args.frames
    with ask.connect(args) as management:
        there, identity = ask.of_client(management, args.connection)
        order = ask.operation(
            there,
            "trace",
            connection=identity,
            frames=frames,
            seconds=max(round(args.seconds), 1),
        )
    if args.json:
        print(table.as_json(order))
    elif args.stop:
        print(f"{printable(args.connection)} is not traced any more")
    else:
        print(
            f"the broker logs the next {order['frames']:,} frames of {printable(args.connection)},"
            f" for at most {order['seconds']} s"
        )
    return 0
