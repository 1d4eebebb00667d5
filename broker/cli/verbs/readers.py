"""Show the named readers of a stream: how far each has come, and what it lacks. Or forget one."""

from __future__ import annotations

import argparse
from typing import cast

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable

EXAMPLES = (
    ("sluice readers ticks", "those that are furthest behind first"),
    ("sluice readers ticks --forget billing", "producers wait for it no more"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("address", metavar="ADDRESS")
    parser.add_argument("--forget", metavar="READER", help="forget this reader, for which no link reads")
    parser.add_argument("--count", type=int, default=100, help="show so many (100)")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """One reader a line, or one that is forgotten."""
    with ask.connect(args) as management:
        if args.forget is not None:
            ask.operation(management, "forget-reader", name=args.address, reader=args.forget)
            print(f"reader {printable(args.forget)} of {printable(args.address)} is forgotten")
            return 0
        answer = ask.operation(management, "readers", name=args.address, count=args.count)
    rows = cast("list[ask.Row]", answer["readers"])
    if args.json:
        print(table.as_json(rows))
        return 0
    for row in rows:
        whose = f"link {row['link']}" if row["link"] else "no link"
        lag = f"{row['lag_msgs']:,} behind"
        print(printable(f"{row['reader']}: offset {row['committed_offset']:,}, {lag}, {whose}"))
    if not rows:
        print(f"{printable(args.address)} has no named readers")
    return 0
