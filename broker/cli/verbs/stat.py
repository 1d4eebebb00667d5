"""Show what a running broker has and does.

-g the broker, -c connections, -s sessions, -q queues, -u subscriptions and receivers, -f flow control:
who is stopped, by what, and who waits, -r bridges, routes and channels. Without any of them: -q.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from broker.cli.main import UsageError
from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.views import FLAGS, QUEUES, VIEWS, View
from broker.cli.verbs import nodes, watch

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.client.request import Management

WILDCARDS = "*?["
EXAMPLES = (
    ("sluice stat", "queues, topics and subscriptions"),
    ("sluice stat -f 'orders.*'", "who is stopped, by what, and whose producers wait"),
    ("sluice stat -q -S msg -L 10", "the ten deepest"),
    ("sluice stat -c --json", "connections, for a program"),
    ("sluice stat -f --watch 1s", "a live table, full-screen on a terminal"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of qpid-stat, and -f and -r."""
    parser.add_argument(
        "filter", nargs="?", metavar="FILTER", help="only nodes of this name; * and ? are wildcards"
    )
    arguments.add_broker(parser)
    for name, flag in FLAGS.items():
        titles = ", ".join(view.title.lower() for view in VIEWS[name])
        parser.add_argument(flag, f"--{name}", action="store_true", help=titles)
    parser.add_argument("-a", "--all", action="store_true", help="the broker's own and temporary nodes too")
    parser.add_argument(
        "-S", "--sort-by", metavar="COLUMN", help="a column's heading, or an attribute; the largest first"
    )
    parser.add_argument("-I", "--increasing", action="store_true", help="sorted: the smallest first")
    parser.add_argument("-L", "--limit", type=arguments.count, metavar="N", help="only N rows of each table")
    watch.add_watch(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Prints once, or until it is interrupted."""
    views = [view for name, views in VIEWS.items() if getattr(args, name) for view in views] or [QUEUES]
    _check_sort(views, args.sort_by)
    with ask.connect(args) as management:
        if args.filter is not None and args.watch is None:
            _check_filter(management, args.filter)
        if args.watch is None:
            print(rendered(shown(management, views, args), args.json))
        elif watch.is_terminal() and not args.json:
            foot = f"{arguments.shown(args.broker)} every {args.watch:g} s, Ctrl-C ends it"
            watch.on_screen(args.watch, lambda room: drawn(shown(management, views, args), foot, room))
        else:
            watch.plainly(args.watch, lambda: rendered(shown(management, views, args), args.json))
    return 0


@dataclass(frozen=True, slots=True)
class Shown:
    """A view and the rows that are in it now."""

    view: View
    rows: Sequence[table.Row]

    @property
    def columns(self) -> Sequence[table.Column]:
        """The view's columns, with the cell where there are several."""
        return table.with_cell(self.view.columns, self.rows)


def shown(management: Management, views: Sequence[View], args: argparse.Namespace) -> list[Shown]:
    """What the broker has now, filtered, sorted and cut as the arguments say."""
    return [Shown(view, _arranged(view, _rows(management, view, args), args)) for view in views]


def rendered(tables: Sequence[Shown], as_json: bool) -> str:
    """All of the tables as one text."""
    if as_json:
        return table.as_json({each.view.title.lower(): each.rows for each in tables})
    parts = (f"{each.view.title}\n{table.plain(each.columns, each.rows)}" for each in _wanted(tables))
    return "\n\n".join(parts)


def drawn(tables: Sequence[Shown], foot: str, room: int) -> RenderableType:
    """All of the tables for a terminal of that width."""
    from rich.console import Group
    from rich.text import Text

    lines: list[Text] = []
    for each in _wanted(tables):
        lines += [Text(each.view.title), *table.coloured(each.columns, each.rows, room), Text()]
    return Group(*lines, Text(foot, style="dim"))


def _wanted(tables: Sequence[Shown]) -> list[Shown]:
    """A table of what is part of something else isn't worth a heading without rows."""
    return [each for each in tables if each.rows or not each.view.within]


def _rows(management: Management, view: View, args: argparse.Namespace) -> Sequence[table.Row]:
    found = [row for kind in view.kinds for row in ask.rows(management, kind, view.attributes)]
    if view.within:
        return [
            {**each, **({ask.CELL: row[ask.CELL]} if ask.CELL in row else {})}
            for row in found
            for each in cast("list[ask.Row]", row[view.within])
        ]
    return [row for row in found if view.holds(row, args.filter, args.all)]


def _arranged(view: View, rows: Sequence[table.Row], args: argparse.Namespace) -> Sequence[table.Row]:
    names = view.sorting(args.sort_by) if args.sort_by else []
    if names:
        rows = table.ordered(rows, names, descending=not args.increasing)
    return rows[: args.limit]


def _check_filter(management: Management, wanted: str) -> None:
    """OperatorError for a name that nothing has; a pattern may match nothing."""
    if not any(mark in wanted for mark in WILDCARDS):
        nodes.require(management, wanted)


def _check_sort(views: Sequence[View], wanted: str | None) -> None:
    if wanted and not any(view.sorting(wanted) for view in views):
        titles = dict.fromkeys(column.title for view in views for column in view.columns)
        raise UsageError(f"--sort-by: no column {wanted!r}; there are {', '.join(titles)}")
