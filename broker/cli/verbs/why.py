"""Say why a queue's, a topic's or a link's traffic waits: what blocks it, since when, what frees it and when.

Without an address: of every producer without credit and every consumer that is held up. Exit status 0 whether
something waits or not.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import cast

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable

EXAMPLES = (
    ("sluice why orders", "who waits there, and what would free it"),
    ("sluice why", "everybody who waits"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument(
        "address", nargs="?", metavar="ADDRESS", help="a queue, topic or subscription, or a link's name or id"
    )
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """One sentence a line."""
    with ask.connect(args) as management:
        asked = {} if args.address is None else {"address": args.address}
        found = ask.each(management, "why", **asked)
    answers = [answer for each in found.values() for answer in cast("list[ask.Row]", each["answers"])]
    if args.json:
        print(table.as_json(answers))
    else:
        lines = [printable(line) for answer in answers for line in _lines(answer, args.address)]
        print("\n".join(lines) or "No producer waits and no consumer is held up.")
    return 0


def _lines(answer: ask.Row, asked: str | None) -> Iterator[str]:
    """Yield the sentence and, of the one link that was asked for, where its window is from, and its terms."""
    yield str(answer["sentence"])
    terms = cast("list[ask.Row]", answer.get("terms") or [])
    if terms and asked is not None and asked in (answer.get("link"), answer.get("link_id")):
        if answer.get("window"):
            yield f"  {answer['window']}"
        yield f"  Beyond what it holds it gets the least of: {', '.join(_term(term) for term in terms)}."


def _term(term: ask.Row) -> str:
    """Return a term as `gate of 'orders' 0`."""
    of_gate = f" of '{term['gate']}'" if term["gate"] else ""
    msgs = "no limit" if term["msgs"] is None else f"{term['msgs']:,}"
    return f"{term['name']}{of_gate} {msgs}"
