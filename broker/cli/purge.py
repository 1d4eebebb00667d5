"""Drop every message of a queue that no consumer holds, or of all subscriptions of a topic."""

from __future__ import annotations

import argparse

from broker.cli import arguments, ask, table


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
        print(
            f"{'would drop' if args.dry_run else 'dropped'} {answer['purged']:,} messages of {args.address}"
        )
    return 0
