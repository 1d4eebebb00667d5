"""Show every setting that holds at an address, its value, and the line of the file it comes from."""

from __future__ import annotations

import argparse
from typing import cast

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable
from broker.cli.terminal.table import Column, text

COLUMNS = (text("setting", "name"), Column("value", ("value",)), text("from", "origin"))
EXAMPLES = (
    ("sluice explain orders", "a queue's settings, each with file, line and column"),
    ("sluice explain not.there.yet --json", "what would hold at an address, for a program"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("address", metavar="ADDRESS", help="a queue or topic, whether or not it exists yet")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Asks the broker, which alone knows what holds."""
    with ask.connect(args) as management:
        answer = ask.operation(management, "explain", address=args.address)
    print(table.as_json(answer) if args.json else told(answer))
    return 0


def told(answer: ask.Row) -> str:
    """The answer as text."""
    exists = "exists" if answer["exists"] else _not_yet(answer)
    lines = [f"{answer['kind']} '{printable(str(answer['address']))}': {exists}"]
    if answer["held_by"]:
        lines.append(f"producers are stopped for '{printable(str(answer['held_by']))}'")
    return "\n".join([*lines, "", table.plain(COLUMNS, cast("list[ask.Row]", answer["settings"]))])


def _not_yet(answer: ask.Row) -> str:
    return (
        "would be created by whoever attaches"
        if answer["auto_create"]
        else "does not exist and isn't created"
    )
