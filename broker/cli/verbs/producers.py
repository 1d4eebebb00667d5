"""Stop or start the producers of a queue or topic, of all that match a pattern, or of all; list the stops.

A stop stands above every threshold and holds for queues and topics to come as well, until a start
lifts it. In a pattern, * is one word and > (or #), at the end, the rest: 'orders.>'.
"""

from __future__ import annotations

import argparse
from typing import cast

from broker.cli.main import UsageError
from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable

EVERYTHING = ">"
DONE = {"stop": "stopped", "start": "started"}
EXAMPLES = (
    ("sluice producers stop orders", "no credit for its producers, whatever the thresholds say"),
    ("sluice producers stop 'orders.>'", "nor for those of any queue below, now or later"),
    ("sluice producers list", "what is stopped so"),
    ("sluice producers start --all", "lift every stop"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("action", choices=(*DONE, "list"))
    parser.add_argument("target", nargs="?", metavar="ADDRESS|PATTERN")
    parser.add_argument("--all", action="store_true", help="every queue and topic")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Names what is concerned at present."""
    if args.action == "list":
        return _list(args)
    if bool(args.target) == args.all:
        raise UsageError("name an address or a pattern, or say --all")
    target = args.target or EVERYTHING
    with ask.connect(args) as management:
        answer = ask.operation(management, f"{args.action}-producers", target=target)
    if args.json:
        print(table.as_json(answer))
        return 0
    names = [printable(str(name)) for name in cast("list[object]", answer["nodes"])]
    print(f"producers {DONE[args.action]}: {', '.join(names) or 'none at present'}")
    return 0


def _list(args: argparse.Namespace) -> int:
    if args.target or args.all:
        raise UsageError("list takes no address")
    with ask.connect(args) as management:
        holds = cast("list[str]", ask.broker(management, ["holds"])["holds"])
    print(
        table.as_json(holds) if args.json else "\n".join(map(printable, holds)) or "no producers are stopped"
    )
    return 0
