"""Send messages to an address and say what became of each.

A row of a CSV file becomes the JSON object of its columns, a JSON line is sent as it stands; both
travel as strings. --size sends so many bytes of binary. Exit status 1 if the broker did not accept
every message.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice, repeat
from typing import TYPE_CHECKING, TextIO

from broker.cli.main import INTERRUPTED, REFUSED, USAGE, UsageError
from broker.cli.terminal import arguments, rows
from broker.cli.terminal.printable import printable
from broker.cli.terminal.progress import ProgressBar
from broker.cli.verbs import nodes

if TYPE_CHECKING:
    from broker.client.link import Connection, Sender

PUMP_EVERY = 256  # messages
SILENT_S = 2.0  # of waiting before it is said
LAST_WORDS_S = 2.0  # for outcomes after something went wrong
FOREVER_S = 1e9
EXAMPLES = (
    ("sluice send orders --body hello --count 10", "ten messages of text"),
    ("sluice send orders --csv flights.csv --durable", "a message for each row"),
    ("sluice send orders --size 1KB --rate 100 --count 50", "fifty of a kilobyte, a hundred a second"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("address", metavar="ADDRESS", help="queue or topic")
    arguments.add_broker(parser)
    body = parser.add_mutually_exclusive_group()
    body.add_argument("--body", metavar="TEXT", default="", help="send this text")
    body.add_argument(
        "--size", type=arguments.size, metavar="SIZE", help="send so many bytes of binary, e.g. 64KB"
    )
    body.add_argument("--csv", metavar="FILE", help="send each row of FILE ('-': stdin)")
    body.add_argument("--jsonl", metavar="FILE", help="send each line of FILE ('-': stdin)")
    parser.add_argument(
        "--count", type=arguments.count, metavar="N", help="messages (default 1; of a file: all)"
    )
    parser.add_argument("--property", type=arguments.pair, action="append", default=[], metavar="K=V")
    parser.add_argument("--durable", action="store_true", help="keep them over a restart of the broker")
    parser.add_argument("--presettled", action="store_true", help="don't ask what became of them")
    parser.add_argument(
        "--window", type=arguments.count, default=1000, metavar="N", help="unsettled at most (1000)"
    )
    parser.add_argument("--rate", type=arguments.rate, metavar="N", help="messages a second")
    parser.add_argument(
        "--timeout", type=arguments.duration, metavar="DURATION", help="give up when blocked so long"
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Sends them all; what was sent before a fault is reported with it."""
    from broker.client.link import Connection

    name = args.csv or args.jsonl
    container = f"sluice-send-{os.getpid()}-{time.monotonic_ns():x}"
    # Whoever named a file that isn't there is told before a broker is asked for anything.
    with (
        rows.opened(name) if name else nullcontext() as file,
        Connection(args.broker, container_id=container) as connection,
    ):
        with nodes.asking(args) as management:
            node = nodes.at(management, args.address)
            sender = connection.sender(args.address, window=args.window, presettled=args.presettled)
            nodes.tell_created(management, "send", node)
            lost_before = nodes.unrouted(management, node)
        begin_s = time.monotonic()
        status, fault = _send(args, file, connection, WaitNotice(args, sender, container))
        summary = _summary(sender, time.monotonic() - begin_s, fault)
    _tell_lost(args, node, lost_before)
    print(json.dumps(summary) if args.json else _told(sender, summary), flush=True)
    if fault:
        print(f"sluice send: {printable(fault)}", file=sys.stderr)
    return status


class WaitNotice:
    """A sender that says, once each time, that it has been waiting for a while, and for what."""

    def __init__(self, args: argparse.Namespace, sender: Sender, container: str) -> None:
        self.sender = sender
        self._args = args
        self._container = container

    def send(self, message: bytes, timeout_s: float | None) -> None:
        """Sends one message; ClientTimeoutError if there was no room for it in that time."""
        self._wait(lambda limit_s: self.sender.send(message, limit_s), timeout_s)

    def flush(self, timeout_s: float) -> None:
        """Waits for all outcomes; ClientTimeoutError if they didn't come in that time."""
        self._wait(self.sender.flush, timeout_s)

    def _wait(self, step: Callable[[float | None], None], timeout_s: float | None) -> None:
        from broker.client.errors import ClientTimeoutError

        if timeout_s is not None and timeout_s <= SILENT_S:
            step(timeout_s)
            return
        try:
            step(SILENT_S)
        except ClientTimeoutError:
            self._tell()
            step(None if timeout_s is None else timeout_s - SILENT_S)

    def _tell(self) -> None:
        unsettled = self.sender.sent - self.sender.settled
        if self.sender.credit > 0 and unsettled:
            what = f"the outcome of {unsettled:,} messages"
        elif self.sender.credit > 0:
            what = "the connection"
        else:
            what = "credit"
        with nodes.asking(self._args) as management:
            reason = nodes.why_blocked(management, self._args.address, self._container)
        text = f"waiting for {what} at {printable(self._args.address)}"
        print(f"sluice send: {text}{': ' if reason else ''}{reason}", file=sys.stderr, flush=True)


def _tell_lost(args: argparse.Namespace, node: nodes.AddressedNode | None, before: int | None) -> None:
    """Says how many messages nobody had subscribed to; those of others at the same time are among them."""
    if node is None or before is None:
        return
    with nodes.asking(args) as management:
        lost = (nodes.unrouted(management, node) or 0) - before
    if lost > 0:
        many = f"{lost:,} message{'s' if lost > 1 else ''}"
        text = f"topic {printable(node.name)}: {many} went nowhere, since nobody subscribes to them"
        print(f"sluice send: {text}", file=sys.stderr, flush=True)


def _send(
    args: argparse.Namespace, file: TextIO | None, connection: Connection, waiting: WaitNotice
) -> tuple[int, str | None]:
    """The exit status and what went wrong; outcomes of what was sent are waited for either way."""
    from broker.client.errors import ClientError

    sender = waiting.sender
    fault: BaseException | None = None
    try:
        _send_all(args, file, connection, waiting)
    except (UsageError, ClientError, KeyboardInterrupt) as error:
        fault = error
    patience_s = LAST_WORDS_S if fault else args.timeout or FOREVER_S
    try:
        waiting.flush(patience_s)
    except (ClientError, KeyboardInterrupt) as error:
        fault = fault or error
    return _judged(sender, fault)


def _judged(sender: Sender, fault: BaseException | None) -> tuple[int, str | None]:
    if fault is None:
        return (0 if sender.presettled or sender.accepted == sender.settled else REFUSED), None
    if isinstance(fault, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    return (USAGE if isinstance(fault, UsageError) else REFUSED), str(fault)


def _send_all(
    args: argparse.Namespace, file: TextIO | None, connection: Connection, waiting: WaitNotice
) -> None:
    from broker.codec import sections

    sender = waiting.sender
    if args.size is not None:
        sender.check_size(args.size)  # before so much memory is asked for
    head = sections.header(durable=args.durable) + sections.application_properties(dict(args.property))
    total = args.count if args.count or args.csv or args.jsonl else 1
    # Lines that trickle in must not wait here for company.
    every = 1 if "-" in (args.csv, args.jsonl) else PUMP_EVERY
    begin_s = time.monotonic()
    with ProgressBar(f"to {printable(args.address)}", total, wanted=not args.json) as bar:
        for number, body in enumerate(_bodies(args, file)):
            if args.rate:
                connection.wait_until(lambda: False, begin_s + number / args.rate - time.monotonic())
            waiting.send(head + body, args.timeout)
            if number % every == 0:
                connection.pump()
            bar.show(
                sender.settled, f"(blocked {sender.blocked_ns / 1e9:.1f} s)" if sender.blocked_ns else ""
            )


def _bodies(args: argparse.Namespace, file: TextIO | None) -> Iterator[bytes]:
    """Encoded bodies, read as they are sent: a file may be longer than memory."""
    from broker.codec import sections

    if file is not None:
        texts = rows.csv_rows(args.csv, file) if args.csv else rows.json_lines(args.jsonl, file)
        return (sections.text_body(text) for text in islice(texts, args.count))
    body = sections.text_body(args.body) if args.size is None else sections.binary_body(bytes(args.size))
    return repeat(body, args.count or 1)


def _summary(sender: Sender, seconds: float, fault: str | None) -> dict[str, object]:
    return {
        "address": sender.address,
        "sent": sender.sent,
        "accepted": sender.accepted,
        "rejected": sender.rejected,
        "released": sender.released,
        "modified": sender.modified,
        "unsettled": sender.sent - sender.settled,
        "presettled": sender.presettled,
        "blocked_s": round(sender.blocked_ns / 1e9, 3),
        "seconds": round(seconds, 3),
        "rejections": [
            {"message": number, "condition": condition, "description": description}
            for number, condition, description in sender.rejections
        ],
        "error": fault,
    }


def _told(sender: Sender, summary: dict[str, object]) -> str:
    outcomes = ("accepted", "rejected", "released", "modified", "unsettled")
    parts = [f"{summary[name]:,} {name}" for name in outcomes if summary[name]]
    if sender.presettled:
        parts = ["pre-settled"]
    lines = [
        f"sent {sender.sent:,} to {printable(str(sender.address))}"
        + (f": {', '.join(parts)}" if parts else ""),
        f"blocked without credit {summary['blocked_s']} s of {summary['seconds']} s",
    ]
    lines += [printable(f"message {n}: {name}: {text}") for n, name, text in sender.rejections[:5]]
    return "\n".join(lines)
