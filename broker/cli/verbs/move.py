"""Move messages from one queue to another, the oldest first, as the other has room.

What a consumer holds stays where it is. Dead letters go back where they came from this way.
"""

from __future__ import annotations

import argparse

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable

EXAMPLES = (
    ("sluice move orders.dead orders --dry-run", "how many it would be"),
    ("sluice move orders.dead orders --count 10", "the ten oldest"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("source", metavar="SOURCE", help="queue to take from")
    parser.add_argument("destination", metavar="TARGET", help="queue to put into")
    parser.add_argument("--count", type=arguments.count, metavar="N", help="at most so many (all)")
    parser.add_argument("--dry-run", action="store_true", help="only say how many it would be")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Says how many are on their way."""
    given = {
        "source": args.source,
        "target": args.destination,
        "count": args.count or 0,
        "dry_run": args.dry_run,
    }
    with ask.connect(args) as management:
        answer = ask.operation(management, "move", **given)
    if args.json:
        print(table.as_json(answer))
    else:
        verb = "would move" if args.dry_run else "moving"
        where = f"from {printable(args.source)} to {printable(args.destination)}"
        print(f"{verb} {answer['moved']:,} messages {where}")
    return 0
