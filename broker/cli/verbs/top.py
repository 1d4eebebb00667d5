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
from typing import TYPE_CHECKING

from broker.cli.terminal import arguments, ask, board, table
from broker.cli.terminal.board import Board
from broker.cli.terminal.views import NODES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.client.request import Management

EXAMPLES = (
    ("sluice top", "full-screen, the busiest first; q leaves"),
    ("sluice top --by stopped", "what is stopped first"),
    ("sluice top --count 1 'orders.*'", "one table, and done"),
    ("sluice top --json --interval 10s", "an object every ten seconds, for a program"),
)
BY = {sort.name: key for key, sort in board.SORTS.items()}
INTERVAL_S = 1.0
# Lines of a screen that are no rows: the head, the heading, the foot and a last one that is left free.
FRAME = 6


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
        watcher = BoardWatcher(management, state)
        if sys.stdout.isatty() and sys.stdin.isatty() and not args.json:
            _on_screen(watcher, args, state)
        else:
            _in_print(watcher, args)
    return 0


@dataclass(frozen=True, slots=True)
class BoardReading:
    """The broker and its nodes at one moment: as many as may be shown, and how many there are."""

    broker: table.Row
    rows: Sequence[table.Row]
    count: int


class BoardWatcher:
    """Asks the broker for what a board shows; it sorts and filters, so thousands of nodes cost little."""

    def __init__(self, management: Management, state: Board) -> None:
        self._management = management
        self._state = state

    def look(self, most: int) -> BoardReading:
        """One round of questions; at least the first so many nodes."""
        broker = ask.broker(self._management, board.BROKER_ATTRIBUTES)
        rows, count = self._all() if self._state.everything else self._first(most)
        return BoardReading(broker, self._state.wanted(rows), count)

    def _first(self, most: int) -> tuple[list[ask.Row], int]:
        asked = self._state.asked, self._state.pattern
        found = [ask.first(self._management, kind, board.ATTRIBUTES, most, *asked) for kind in NODES]
        return [row for rows, _ in found for row in rows], sum(count for _, count in found)

    def _all(self) -> tuple[list[ask.Row], int]:
        rows = [row for kind in NODES for row in ask.rows(self._management, kind, board.ATTRIBUTES)]
        return rows, len(self._state.wanted(rows))


def _turns(args: argparse.Namespace) -> Iterator[int]:
    return iter(range(args.count)) if args.count else count()


def _in_print(watcher: BoardWatcher, args: argparse.Namespace) -> None:
    for turn in _turns(args):
        if turn:
            time.sleep(args.interval)
        now = watcher.look(args.limit)
        rows = now.rows[: args.limit]
        if args.json:
            print(json.dumps({"broker": now.broker, "nodes": rows}, default=str), flush=True)
        else:
            shown = table.plain(table.with_cell(board.COLUMNS, rows), rows)
            print(*board.head(now.broker), shown, "", sep="\n", flush=True)


def _on_screen(watcher: BoardWatcher, args: argparse.Namespace, state: Board) -> None:
    from rich.live import Live

    from broker.cli.terminal.keyboard import Keyboard

    with Keyboard() as keyboard, Live(screen=True, auto_refresh=False) as live:

        def look() -> BoardReading:
            return watcher.look(state.first + live.console.height)

        def draw() -> None:
            live.update(drawn(now, state, arguments.shown(args.broker), *live.console.size), refresh=True)

        now = look()
        for turn in _turns(args):
            if turn and not state.paused:
                now = look()
            draw()
            next_s = time.monotonic() + args.interval
            while (left_s := next_s - time.monotonic()) > 0:
                keys = keyboard.keys(left_s)
                if not all(state.press(key) for key in keys):
                    return
                if keys:
                    now = look() if not state.paused and state.typing is None else now
                    draw()


def drawn(now: BoardReading, state: Board, url: str, width: int, height: int) -> RenderableType:
    """The whole screen."""
    from rich.console import Group
    from rich.text import Text

    first, second = board.head(now.broker)
    columns = table.with_cell(board.COLUMNS, now.rows)
    lines = [
        Text(f"sluice top   {table.word(url)}", style="bold"),
        Text(first),
        Text(second, style="bold red" if now.broker["stopped_nodes"] else "dim"),
        *table.coloured(columns, state.page_of(now.rows, height - FRAME, now.count), width),
        Text(state.foot(now.count), style="dim"),
    ]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)
