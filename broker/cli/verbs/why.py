"""Say why a queue's, a topic's or a link's traffic waits: what blocks it, since when, what frees it and when.

Without an address: of every producer without credit and every consumer that is held up. Exit status 0 whether
something waits or not.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable

if TYPE_CHECKING:
    from broker.client.request import Management

# Over several cells a link's id bears its cell.
LINK_OF_CELL = re.compile(r"\d+:c\d+\.\d+")
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
        address, answers = _answers(management, args.address)
    if args.json:
        print(table.as_json(answers))
    else:
        lines = [printable(line) for answer in answers for line in _lines(answer, address)]
        print("\n".join(lines) or "No producer waits and no consumer is held up.")
    return 0


def _answers(management: Management, address: str | None) -> tuple[str | None, list[ask.Row]]:
    """Return the address as the cells know it, and what they answer about it."""
    if address is not None and LINK_OF_CELL.fullmatch(address) and ask.cells(management) > 1:
        there, address = ask.of_client(management, address)
        found = [ask.operation(there, "why", address=address)]
    else:
        asked = {} if address is None else {"address": address}
        found = list(ask.each(management, "why", **asked).values())
    return address, [answer for each in found for answer in cast("list[ask.Row]", each["answers"])]


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
