"""Say why a queue's, a topic's or a link's traffic waits: what blocks it, since when, what frees it and when.

Exit status 0 whether something waits or not.
"""

from __future__ import annotations

import argparse
from typing import cast

from broker.cli import arguments, ask, table
from broker.cli.table import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument(
        "address", metavar="ADDRESS", help="a queue, topic or subscription, or a link's name or id"
    )
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """One sentence a line."""
    with ask.connect(args) as management:
        answers = cast("list[ask.Row]", ask.operation(management, "why", address=args.address)["answers"])
    if args.json:
        print(table.as_json(answers))
    else:
        print("\n".join(printable(str(answer["sentence"])) for answer in answers))
    return 0
