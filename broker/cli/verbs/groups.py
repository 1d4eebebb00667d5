"""Show the message groups of a queue: whose each is, and what waits for that consumer. Or free one."""

from __future__ import annotations

import argparse
from typing import cast

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable

EXAMPLES = (
    ("sluice groups orders", "those with most waiting messages first"),
    ("sluice groups orders --reset customer-7", "its next message may go to another consumer"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("address", metavar="ADDRESS")
    parser.add_argument("--reset", metavar="GROUP", help="take this group from its consumer")
    parser.add_argument("--count", type=int, default=100, help="show so many (100)")
    parser.add_argument(
        "--filter", default="", metavar="TEXT", help="those with this in their ids, or a pattern as order-*"
    )
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """One group a line, or one that is reset."""
    with ask.connect(args) as management:
        if args.reset is not None:
            answer = ask.operation(management, "reset-group", name=args.address, group=args.reset)
        else:
            given = {"count": args.count, "filter": args.filter}
            answer = ask.operation(management, "groups", name=args.address, **given)
    if args.json:
        print(table.as_json(answer if args.reset is not None else answer["groups"]))
    elif args.reset is not None:
        told = "is free" if answer["free"] else "is free once its consumer has settled what it holds of it"
        print(f"group {printable(args.reset)} of {printable(args.address)} {told}")
    else:
        rows = cast("list[ask.Row]", answer["groups"])
        for row in rows:
            whose = f"link {row['link']}" if row["link"] else "no consumer"
            ending = ", ends" if row["ending"] else ""
            counts = f"{row['waiting']:,} waiting, {row['unsettled']:,} unsettled"
            print(printable(f"{row['group']}: {whose}, {counts}{ending}"))
        if not rows:
            print(f"{printable(args.address)} has no message groups now")
    return 0
