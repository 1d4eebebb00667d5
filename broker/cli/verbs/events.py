"""Show the broker's last events, and with --follow those to come.

One line an event; --json has them as they are (`sluice schema events`). Samples, one a second for each
node that is busy, are shown with --samples or --kind sample only.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from queue import SimpleQueue
from typing import cast

from broker.cli.terminal import arguments, ask
from broker.cli.terminal.printable import safe
from broker.errors import SluiceError
from broker.manage.events.schema import KINDS

TOPIC = "$sluice/events"
# What the line begins with, and what says nothing to a reader of lines.
SAID = ("v", "seq", "time", "mono_ns", "event", "node")
# Without samples a screen of other events may lie far back.
MOST = 1000
CREDIT = 1000
# How long all cells have to answer before the first event is shown, and until one is asked again.
WAIT_S, PAUSE_S = 10.0, 1.0
EXAMPLES = (
    ("sluice events --count 5", "the last five"),
    ("sluice events --node orders --kind stopped", "when it was stopped"),
    ("sluice events --follow --json", "each as it happens, for a program"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("--follow", action="store_true", help="go on with events as they happen")
    parser.add_argument("--count", type=arguments.natural, default=20, metavar="N", help="the last N (20)")
    parser.add_argument(
        "--kind", action="append", type=_kind, metavar="KIND", help="only these (may be repeated)"
    )
    parser.add_argument("--node", metavar="NAME", help="only of this queue, topic or subscription")
    parser.add_argument("--samples", action="store_true", help="samples as well")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def _kind(text: str) -> str:
    """A kind of event that there is; the error names them all."""
    if text in KINDS:
        return text
    close = get_close_matches(text, KINDS, 1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise argparse.ArgumentTypeError(f"no kind of event is {text!r}{hint}; there are {', '.join(KINDS)}")


def run(args: argparse.Namespace) -> int:
    """Subscribes before it asks for what was, so that nothing is missing between the two."""
    if not args.follow:
        _print(args, _past(args)[0])
        return 0
    from broker.client.link import Connection
    from broker.client.request import tool_container

    with ask.connect(args) as management:
        cells = ask.cells(management)
    if cells > 1:
        return _follow_each(args, cells)
    with Connection(args.broker, container_id=tool_container()) as connection:
        receiver = connection.receiver(TOPIC, credit=CREDIT)
        past, shown = _past(args)
        _print(args, past)
        while True:
            messages = receiver.take(CREDIT, None)
            if not messages:
                return 0
            events = [event for event in map(_event, messages) if cast("int", event["seq"]) > shown.get(0, 0)]
            _print(args, [event for event in events if _is_wanted(args, event)])


def _follow_each(args: argparse.Namespace, cells: int) -> int:
    """Print the events of all cells as they come; one that isn't there is said, and followed once it is."""
    told: SimpleQueue[tuple[int, list[bytes] | SluiceError]] = SimpleQueue()
    ready = threading.Semaphore(0)
    for cell in range(cells):
        threading.Thread(target=_follow, args=(args.broker, cell, told, ready), daemon=True).start()
    for _ in range(cells):
        ready.acquire(timeout=WAIT_S)
    past, shown = _past(args)
    _print(args, past)
    while True:
        cell, messages = told.get()
        if isinstance(messages, SluiceError):
            print(f"note: cell {cell} is not followed: {safe(str(messages))}", file=sys.stderr)
            # Its next life counts anew.
            shown.pop(cell, None)
            continue
        events = [{**_event(message), "cell": cell} for message in messages]
        new = [event for event in events if cast("int", event["seq"]) > shown.get(cell, 0)]
        _print(args, [event for event in new if _is_wanted(args, event)])


def _follow(
    url: str,
    cell: int,
    told: SimpleQueue[tuple[int, list[bytes] | SluiceError]],
    ready: threading.Semaphore,
) -> None:
    """Put the events of a cell into a queue, again and again where its connection ends."""
    from broker.client.link import Connection
    from broker.client.request import tool_container

    while True:
        try:
            with Connection(url, container_id=tool_container()) as connection:
                receiver = connection.receiver(f"$cell/{cell}/{TOPIC}", credit=CREDIT)
                ready.release()
                while messages := receiver.take(CREDIT, None):
                    told.put((cell, messages))
        except SluiceError as fault:
            told.put((cell, fault))
        time.sleep(PAUSE_S)


def _past(args: argparse.Namespace) -> tuple[list[dict[str, object]], dict[int, int]]:
    """The last events there are of those that are wanted, and the number of the very last of each cell."""
    if not args.count:
        return [], {}
    samples = bool(args.samples) or "sample" in (args.kind or ())
    with ask.connect(args) as management:
        found = ask.each(management, "events", count=MOST, samples=samples)
    events: list[dict[str, object]] = []
    last: dict[int, int] = {}
    for cell, answer in found.items():
        of_cell = [json.loads(line) for line in cast("list[str]", answer["events"])]
        last[cell] = max((event["seq"] for event in of_cell), default=0)
        events += [{**event, "cell": cell} for event in of_cell] if len(found) > 1 else of_cell
    events.sort(key=lambda event: str(event["time"]))
    return [event for event in events if _is_wanted(args, event)][-args.count :], last


def _is_wanted(args: argparse.Namespace, event: Mapping[str, object]) -> bool:
    if args.node is not None and event["node"] != args.node:
        return False
    if args.kind:
        return event["event"] in args.kind
    return bool(args.samples) or event["event"] != "sample"


def _event(message: bytes) -> dict[str, object]:
    from broker.codec import sections

    event = json.loads(sections.shown(message))
    assert isinstance(event, dict)
    return event


def _print(args: argparse.Namespace, events: Iterable[Mapping[str, object]]) -> None:
    for event in events:
        text = json.dumps(event) if args.json else safe(_line(event))
        sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _line(event: Mapping[str, object]) -> str:
    """When, what, where, and the event's own fields as KEY=VALUE."""
    fields = " ".join(f"{key}={_shown(value)}" for key, value in event.items() if key not in SAID)
    return f"{event['time']}  {event['event']!s:<17}  {event['node'] or '-'}  {fields}".rstrip()


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)
