"""A record as one line: text for people, JSON for programs.

What peers say ends up in lines: names, addresses, descriptions. No character of theirs begins a new line,
moves a terminal's cursor or reverses the text, and none of them makes a line long.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

# Characters of a message; a peer chooses the length of its names.
LONGEST = 2000


class TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00,000 INFO sluice.amqp: …``; what follows an exception is indented.

    ``cell``: the process is that cell of several, and its lines say so, as ``INFO cell-1 sluice.amqp: …``.
    """

    def __init__(self, cell: int | None = None) -> None:
        super().__init__()
        self._label = "" if cell is None else f"cell-{cell} "

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback's own lines below it."""
        text = shortened(printable(record.getMessage()))
        line = f"{self.formatTime(record)} {record.levelname} {self._label}{record.name}: {text}"
        if record.exc_info:
            told = self.formatException(record.exc_info).splitlines()
            line += "".join(f"\n    {printable(each)}" for each in told)
        return line


class JsonFormatter(logging.Formatter):
    """``{"time": …, "level": …, "logger": …, "message": …}`` and the record's fields, in ASCII.

    ``cell``, of one of several, is a field of each line.
    """

    def __init__(self, cell: int | None = None) -> None:
        super().__init__()
        self._cell = cell

    def format(self, record: logging.LogRecord) -> str:
        """The line; an exception is one of its fields."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, object] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shortened(record.getMessage()),
        }
        if self._cell is not None:
            told["cell"] = self._cell
        for name, value in fields_of(record).items():
            told[name] = shortened(value) if isinstance(value, str) else value
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """What the line is about, beside its text."""
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def printable(text: str) -> str:
    """The text with everything escaped that a terminal or a reader of lines could take for more than text."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def shortened(text: str) -> str:
    """At most ``LONGEST`` characters of it, and how many more there were."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text) - LONGEST} more)"
