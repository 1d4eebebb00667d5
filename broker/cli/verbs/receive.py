"""Receive messages from an address and print their bodies, one a line.

A message is accepted when it is taken for printing; what is held beyond --count is never asked for.
Control characters are printed as escapes, so that a body can't command the terminal.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.cli.main import REFUSED
from broker.cli.terminal import arguments
from broker.cli.terminal.printable import printable, safe
from broker.cli.terminal.progress import ProgressBar
from broker.cli.verbs import nodes

if TYPE_CHECKING:
    from broker.client.link import Connection, Receiver

BATCH = 100
EXAMPLES = (
    ("sluice receive orders --count 10 --timeout 5s", "ten messages; status 1 if fewer came"),
    ("sluice receive orders --json --timeout 1s", "all there are, with their properties"),
    ("sluice receive orders --rate 500 --no-output --timeout 1s", "a slow consumer"),
    ("sluice receive flights --offset first --timeout 1s", "all that a stream has; it stays there"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("address", metavar="ADDRESS", help="queue or topic")
    arguments.add_broker(parser)
    parser.add_argument(
        "--count", type=arguments.count, metavar="N", help="stop after N; 1 if fewer came in time"
    )
    parser.add_argument("--rate", type=arguments.rate, metavar="N", help="accept at most N messages a second")
    parser.add_argument("--credit", type=arguments.count, default=1000, metavar="N", help="prefetch (1000)")
    parser.add_argument(
        "--timeout", type=arguments.duration, metavar="DURATION", help="stop when idle so long"
    )
    said = "where to begin in a stream: an offset, first, last, next (the default), or a span ago such as 10m"
    parser.add_argument("--offset", type=_start, metavar="START", help=said)
    parser.add_argument("--no-output", action="store_true", help="count only")
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Receives until the count, the timeout or an interrupt; the tally goes to stderr."""
    from broker.client.link import Connection

    with Connection(args.broker) as connection:
        with nodes.asking(args) as management:
            node = nodes.at(management, args.address)
            receiver = connection.receiver(
                args.address, credit=args.credit, limit=args.count, start=args.offset
            )
            nodes.tell_created(management, "receive", node)
        tally = ReceiveProgress(time.monotonic())
        try:
            _receive(args, connection, receiver, tally)
        finally:
            seconds = time.monotonic() - tally.begin_s
            source = printable(args.address)
            print(f"received {tally.taken:,} from {source} in {seconds:.3f} s", file=sys.stderr)
    return REFUSED if args.count and tally.taken < args.count else 0


@dataclass(slots=True)
class ReceiveProgress:
    """How far it has come; told even when an interrupt or the broker ends it."""

    begin_s: float
    taken: int = 0


def _receive(
    args: argparse.Namespace, connection: Connection, receiver: Receiver, tally: ReceiveProgress
) -> None:
    """Takes and prints; a connection that ends while waiting raises why."""
    quiet = args.no_output or not sys.stdout.isatty()
    with ProgressBar(f"from {printable(args.address)}", args.count, wanted=quiet and not args.json) as bar:
        while not args.count or tally.taken < args.count:
            if args.rate:
                connection.wait_until(
                    lambda: False, tally.begin_s + tally.taken / args.rate - time.monotonic()
                )
            messages = receiver.take(_most(args, tally.taken), args.timeout)
            if not messages:
                return
            tally.taken += len(messages)
            bar.show(tally.taken)
            if not args.no_output:
                sys.stdout.writelines(_line(message, as_json=args.json) for message in messages)
                sys.stdout.flush()


def _start(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() else text


def _most(args: argparse.Namespace, taken: int) -> int:
    batch = 1 if args.rate else BATCH
    return min(batch, args.count - taken) if args.count else batch


def _line(message: bytes, *, as_json: bool) -> str:
    from broker.codec import sections

    if as_json:
        return json.dumps(sections.described(message), default=str) + "\n"
    return safe(sections.shown(message)) + "\n"
