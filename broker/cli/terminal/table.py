"""Tables: rows of attributes as cells of text, for a reader of lines, for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.cli.terminal import layout
from broker.cli.terminal.printable import printable
from broker.units import format_size

if TYPE_CHECKING:
    from rich.text import Text as RichText

# Attributes that, where true, mean that somebody waits.
ALARMING = ("flowStopped", "blocked", "shut")

Row = Mapping[str, object]


def word(value: object) -> str:
    """A value as a cell shows it: yes and no, numbers with separators, nothing as '-'."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return printable(", ".join(map(str, value))) or "-"
    return printable(str(value))


def limit(value: object) -> str:
    """A limit or threshold, where 0 means none."""
    return word(value) if value else "-"


def size(value: object) -> str:
    """Bytes, rounded to a unit."""
    if not isinstance(value, int):
        return word(value)
    amount, units = float(value), ("B", "KB", "MB", "GB")
    for unit in units:
        if amount < 1024 or unit == units[-1]:
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return word(value)


def size_limit(value: object) -> str:
    """A limit in bytes as it was set, where 0 means none."""
    return format_size(value) if isinstance(value, int) and value else "-"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, the attributes it is made of and how they become a cell."""

    title: str
    names: tuple[str, ...]
    show: Callable[[object], str] = word
    right: bool = True

    def cell(self, row: Row) -> str:
        """What stands in a row."""
        return "/".join(self.show(row.get(name)) for name in self.names)


def text(title: str, name: str) -> Column:
    """A column of words, set left."""
    return Column(title, (name,), right=False)


def number(title: str, *names: str, show: Callable[[object], str] = word) -> Column:
    """A column of numbers, set right; several stand with a slash between them."""
    return Column(title, names, show)


def with_cell(columns: Sequence[Column], rows: Sequence[Row]) -> Sequence[Column]:
    """The columns, with one of the cells where the rows are of several."""
    first, *others = columns
    return [first, number("cell", "cell"), *others] if any("cell" in row for row in rows) else columns


def attributes(columns: Sequence[Column]) -> list[str]:
    """What to ask for, each once."""
    return list(dict.fromkeys(name for column in columns for name in column.names))


def laid_out(columns: Sequence[Column], rows: Sequence[Row], room: int | None = None) -> list[str]:
    """A line of headings and one for each row; nothing in them can command a terminal."""
    cells = [
        [column.title for column in columns],
        *([column.cell(row) for column in columns] for row in rows),
    ]
    return layout.lines(cells, [column.right for column in columns], room)


def plain(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """The table without any terminal's help."""
    heading, *others = laid_out(columns, rows)
    return "\n".join([heading, "-" * max(map(layout.width, (heading, *others))), *others])


def coloured(columns: Sequence[Column], rows: Sequence[Row], room: int) -> list[RichText]:
    """The table's lines for a terminal of that width; what flow control has stopped stands out."""
    from rich.text import Text

    heading, *others = laid_out(columns, rows, room)
    styles = ["bold red" if any(row.get(name) for name in ALARMING) else "" for row in rows]
    found = [Text(line, style=style) for line, style in zip(others, styles, strict=True)]
    return [Text(heading, style="bold underline"), *found]


def ordered(rows: Sequence[Row], names: Sequence[str], *, descending: bool) -> list[Row]:
    """The rows by these attributes; those that have none of the first stand last either way."""
    known = [row for row in rows if row.get(names[0]) not in (None, "")]
    unknown = [row for row in rows if row.get(names[0]) in (None, "")]
    return (
        sorted(known, key=lambda row: [_rank(row.get(name)) for name in names], reverse=descending) + unknown
    )


def _rank(value: object) -> tuple[bool, float, str]:
    """Numbers before words, so that any two can be compared."""
    if isinstance(value, int | float):
        return False, float(value), ""
    return True, 0.0, str(value)


def as_json(value: object) -> str:
    """JSON; anything a terminal might obey is escaped by ASCII."""
    return json.dumps(value, indent=2, default=str)
