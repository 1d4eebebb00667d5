"""Drop every message of a queue that no consumer holds, or of all subscriptions of a topic."""

from __future__ import annotations

import argparse

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable

EXAMPLES = (
    ("sluice purge orders --dry-run", "how many it would be"),
    ("sluice purge orders", "drop them"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("address", metavar="ADDRESS")
    parser.add_argument("--dry-run", action="store_true", help="only say how many it would be")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Says how many are gone."""
    with ask.connect(args) as management:
        answer = ask.operation(management, "purge", name=args.address, dry_run=args.dry_run)
    if args.json:
        print(table.as_json(answer))
    else:
        verb = "would drop" if args.dry_run else "dropped"
        print(f"{verb} {answer['purged']:,} messages of {printable(args.address)}")
    return 0
