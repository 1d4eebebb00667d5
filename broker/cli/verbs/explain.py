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
    address = printable(str(answer["address"]))
    lines = [f"{_kind(answer)} '{address}'{_partitions(answer, address)}: {exists}"]
    if answer["held_by"]:
        lines.append(f"producers are stopped for '{printable(str(answer['held_by']))}'")
    return "\n".join([*lines, "", table.plain(COLUMNS, cast("list[ask.Row]", answer["settings"]))])


def _kind(answer: ask.Row) -> str:
    """Return what users call it: a stream is a queue, or a topic where it has partitions."""
    is_stream = _setting(answer, "queue_type") == "stream" or _setting(answer, "partitions")
    return "stream" if is_stream else str(answer["kind"])


def _partitions(answer: ask.Row, address: str) -> str:
    most = _setting(answer, "partitions")
    if not isinstance(most, int) or most == 0:
        return ""
    if most == 1:
        return f" of 1 partition, '{address}/0'"
    return f" of {most} partitions, '{address}/0' to '{address}/{most - 1}'"


def _setting(answer: ask.Row, name: str) -> object:
    rows = cast("list[ask.Row]", answer["settings"])
    return next((row["value"] for row in rows if row["name"] == name), None)


def _not_yet(answer: ask.Row) -> str:
    return (
        "would be created by whoever attaches"
        if answer["auto_create"]
        else "does not exist and isn't created"
    )
