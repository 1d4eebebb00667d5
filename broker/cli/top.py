"""Watch the broker's nodes, the busiest first: rates, depth, what is stopped and by what.

On a terminal it takes the whole screen. Keys: r rate (in and out together), i in, o out, d depth, b bytes,
s stopped first, n name, R reverse, / filter, a the broker's own nodes too, arrows and pages to move,
space to pause, q to leave. Without a terminal a table is printed every so often, and with --json one
object a line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, cast

from broker.cli import arguments, ask, board, table
from broker.cli.board import Board
from broker.cli.views import NODES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.cli.keyboard import Keyboard
    from broker.client.request import Management

EXAMPLES = (
    ("sluice top", "full-screen, the busiest first; q leaves"),
    ("sluice top --by stopped", "what is stopped first"),
    ("sluice top --count 1 'orders.*'", "one table, and done"),
    ("sluice top --json --interval 10s", "an object every ten seconds, for a program"),
)
BY = {name: key for key, (name, _) in board.SORTS.items()}
INTERVAL_S = 1.0
# Lines of a screen that are no rows: the head, the table's frame and heading, the foot.
FRAME = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument(
        "filter", nargs="?", default="", metavar="FILTER", help="part of a name, or a pattern with * and ?"
    )
    arguments.add_broker(parser)
    parser.add_argument("--by", choices=tuple(BY), default="rate", help="sorted by (rate)")
    parser.add_argument(
        "--interval", type=arguments.duration, default=INTERVAL_S, metavar="SECONDS", help="(1 s)"
    )
    parser.add_argument("--count", type=arguments.count, metavar="N", help="leave after so many times")
    parser.add_argument("--limit", type=arguments.count, default=20, metavar="N", help="rows in print (20)")
    parser.add_argument("-a", "--all", action="store_true", help="the broker's own and temporary nodes too")
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Until q, an interrupt or the count."""
    state = Board(sort=BY[args.by], pattern=args.filter, everything=args.all)
    with ask.connect(args) as management:
        if sys.stdout.isatty() and sys.stdin.isatty() and not args.json:
            _on_screen(management, args, state)
        else:
            _in_print(management, args, state)
    return 0


@dataclass(frozen=True, slots=True)
class Look:
    """The broker and its nodes at one moment."""

    broker: table.Row
    rows: Sequence[table.Row]


def look(management: Management) -> Look:
    """One round of questions."""
    [broker] = ask.rows(management, "broker", board.BROKER_ATTRIBUTES)
    rows = [row for kind in NODES for row in ask.rows(management, kind, board.ATTRIBUTES)]
    return Look(broker, rows)


def _turns(args: argparse.Namespace) -> Iterator[int]:
    return iter(range(args.count)) if args.count else count()


def _in_print(management: Management, args: argparse.Namespace, state: Board) -> None:
    for turn in _turns(args):
        if turn:
            time.sleep(args.interval)
        now = look(management)
        rows = state.wanted(now.rows)[: args.limit]
        if args.json:
            print(json.dumps({"broker": now.broker, "nodes": rows}, default=str), flush=True)
        else:
            print(
                *board.head(now.broker, now.rows), table.plain(board.COLUMNS, rows), "", sep="\n", flush=True
            )


def _on_screen(management: Management, args: argparse.Namespace, state: Board) -> None:
    from rich.live import Live

    from broker.cli.keyboard import Keyboard

    with Keyboard() as keyboard, Live(screen=True, auto_refresh=False) as live:
        now = look(management)
        for _ in _turns(args):
            if not state.paused:
                now = look(management)
            live.update(drawn(now, state, live.console.height, args.broker), refresh=True)
            next_s = time.monotonic() + args.interval
            while (left_s := next_s - time.monotonic()) > 0:
                pressed = _pressed(keyboard, state, left_s)
                if pressed is None:
                    return
                if pressed:
                    live.update(drawn(now, state, live.console.height, args.broker), refresh=True)


def _pressed(keyboard: Keyboard, state: Board, seconds: float) -> bool | None:
    """Whether a key was pressed; None: leave."""
    keys = keyboard.keys(seconds)
    return bool(keys) if all(state.press(key) for key in keys) else None


def drawn(now: Look, state: Board, height: int, url: str) -> RenderableType:
    """The whole screen."""
    from rich.console import Group
    from rich.text import Text

    rows = state.wanted(now.rows)
    found = table.rich("", board.COLUMNS, state.page_of(rows, height - FRAME))
    found.title = None
    found.expand = True
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in board.head(now.broker, now.rows)]
    lines[1].stylize("bold red" if cast("int", now.broker["stopped_nodes"]) else "dim")
    title = Text(f"sluice top   {table.word(url)}", style="bold", no_wrap=True)
    return Group(title, *lines, found, Text(state.foot(len(rows)), style="dim", no_wrap=True))
