"""Look at a queue's messages without taking them, the oldest first.

What is on disk only is read from there. --json has the whole message, sections and all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from broker.cli.terminal import arguments, ask
from broker.cli.terminal.printable import safe

if TYPE_CHECKING:
    from broker.client.request import Management

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
    from broker.codec import sections

    with ask.connect(args) as management:
        for row in _rows(management, args.address, args.offset, args.count):
            encoded = bytes(cast("bytes", row.pop("message")))
            if args.json:
                print(json.dumps(row | sections.described(encoded)))
            else:
                body = safe(sections.shown(encoded))
                print(f"{row['number']:>8}  {row['state']:<8}  {row['bytes']:>8,} B  {body}")
    return 0


def _rows(management: Management, address: str, offset: int, count: int) -> Iterator[dict[str, object]]:
    """As many as are asked for; an answer has as many as fit in it."""
    end = offset + count
    while offset < end:
        given = {"name": address, "offset": offset, "count": end - offset}
        answer = ask.operation(management, "browse", **given)
        rows = cast("list[dict[str, object]]", answer["messages"])
        if not rows:
            return
        yield from rows
        offset += len(rows)
