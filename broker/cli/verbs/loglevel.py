"""Show from which level on each of the broker's loggers writes, or change one of them.

A change holds until the broker reads its settings again, or is started again; the level `inherit` gives
a logger the level of `sluice` again.
"""

from __future__ import annotations

import argparse
from typing import cast

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable
from broker.errors import OperatorError

INHERIT = "inherit"
EXAMPLES = (
    ("sluice log-level", "all loggers, and their levels"),
    ("sluice log-level sluice.amqp debug", "see what clients are refused, and why"),
    ("sluice log-level sluice.amqp inherit", "and no longer"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("logger", nargs="?", metavar="LOGGER")
    parser.add_argument("level", nargs="?", metavar="LEVEL", help=f"debug, info, warning, error or {INHERIT}")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """A logger and its level on each line."""
    asked: dict[str, object] = {}
    if args.level is not None:
        asked = {"logger": args.logger, "level": "" if args.level == INHERIT else args.level}
    with ask.connect(args) as management:
        levels = cast("dict[str, str]", ask.operation(management, "log-levels", **asked)["levels"])
    if args.logger is not None:
        if args.logger not in levels:
            raise OperatorError(f"no logger '{args.logger}'; there are {', '.join(levels)}")
        levels = {args.logger: levels[args.logger]}
    if args.json:
        print(table.as_json(levels))
    else:
        width = max(map(len, levels))
        print("\n".join(f"{printable(name):<{width}}  {printable(level)}" for name, level in levels.items()))
    return 0
