"""Close connections and detach links, by the ids that `sluice stat -c`, `-u` and `-f` show.

A connection's id is like c12, a link's like c12.3. The client is told that an operator did it
(`amqp:connection:forced`, `amqp:link:detach-forced`); most clients come back by themselves. What a
consumer had not settled goes to others. With several cells each counts its own: 2:c12 is that of cell 2.
"""

from __future__ import annotations

import argparse

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable

EXAMPLES = (
    ("sluice close c12", "a connection, with its sessions and links"),
    ("sluice close c12.3 c12.4", "two links of a connection that stays"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("ids", nargs="+", metavar="CONNECTION|LINK", help="as stat shows them: c12 or c12.3")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """One after another; the first the broker refuses ends it."""
    done: list[ask.Row] = []
    with ask.connect(args) as management:
        for each in args.ids:
            kind = "link" if "." in each else "connection"
            there, identity = ask.of_client(management, each)
            there.call("DELETE", type=ask.PREFIX + kind, identity=identity, body={})
            done.append({"id": each, "kind": kind})
            if not args.json:
                print(f"{'detached' if kind == 'link' else 'closed'} {kind} {printable(each)}", flush=True)
    if args.json:
        print(table.as_json(done))
    return 0
