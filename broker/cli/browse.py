"""Look at a queue's messages without taking them, the oldest first.

What was paged out to disk is counted, not shown. --json has the whole message, sections and all.
"""

from __future__ import annotations

import argparse
import json
from typing import cast

from broker.cli import arguments, ask
from broker.cli.printable import safe

EXAMPLES = (
    ("sluice browse orders --count 5", "the five oldest, which stay"),
    ("sluice browse orders --json", "with properties and annotations"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("address", metavar="ADDRESS")
    parser.add_argument("--count", type=arguments.count, default=20, metavar="N", help="so many (20)")
    parser.add_argument("--offset", type=arguments.natural, default=0, metavar="N", help="skip the first N")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """One message a line."""
    from broker.client import codec

    with ask.connect(args) as management:
        given = {"name": args.address, "offset": args.offset, "count": args.count}
        answer = ask.operation(management, "browse", **given)
    for row in cast("list[dict[str, object]]", answer["messages"]):
        encoded = bytes(cast("bytes", row.pop("message")))
        if args.json:
            print(json.dumps(row | codec.described(encoded)))
        else:
            body = safe(codec.shown(encoded))
            print(f"{row['number']:>8}  {row['state']:<8}  {row['bytes']:>8,} B  {body}")
    if not args.json and answer["paged"]:
        print(f"and {answer['paged']:,} on disk")
    return 0
