"""List the messages of a queue that are to be delivered later, the next first; or cancel one of them.

--json has the whole message, sections and all. A message that is cancelled is dropped.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable, safe

if TYPE_CHECKING:
    from broker.client.request import Management

EXAMPLES = (
    ("sluice delayed orders --count 5", "the next five"),
    ("sluice delayed orders --cancel 4711", "drop message 4711 before its time"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("address", metavar="ADDRESS")
    parser.add_argument("--count", type=arguments.count, default=20, metavar="N", help="so many (20)")
    parser.add_argument("--offset", type=arguments.natural, default=0, metavar="N", help="skip the first N")
    parser.add_argument("--cancel", type=arguments.natural, metavar="NUMBER", help="drop this message")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """One message a line, or what was cancelled."""
    with ask.connect(args) as management:
        if args.cancel is None:
            _list(management, args)
            return 0
        answer = ask.operation(management, "cancel", name=args.address, number=args.cancel)
    if args.json:
        print(table.as_json(answer))
    else:
        print(f"cancelled message {args.cancel} of {printable(args.address)}")
    return 0


def _list(management: Management, args: argparse.Namespace) -> None:
    """As many as are asked for; an answer has as many as fit in it."""
    from broker.codec import sections

    offset, end = args.offset, args.offset + args.count
    while offset < end:
        given = {"name": args.address, "offset": offset, "count": end - offset}
        rows = cast("list[dict[str, object]]", ask.operation(management, "delayed", **given)["messages"])
        for row in rows:
            encoded = bytes(cast("bytes", row.pop("message")))
            if args.json:
                print(json.dumps(row | sections.described(encoded)))
            else:
                due = datetime.fromtimestamp(cast("int", row["due_ms"]) / 1000, UTC)
                at = due.isoformat(timespec="milliseconds")
                print(f"{row['number']:>8}  {at}  {row['bytes']:>8,} B  {safe(sections.shown(encoded))}")
        if not rows:
            return
        offset += len(rows)
