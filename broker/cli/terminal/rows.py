"""Message bodies from files of rows: CSV with a header line, or JSON lines; '-' is stdin.

A CSV row becomes the JSON object of its columns, every value text as the file has it; a JSON line is
checked and sent as it stands. Both are strings, the one body every client can read. A fault names
file and line.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from broker.cli.main import UsageError


@contextmanager
def opened(name: str) -> Iterator[TextIO]:
    """The file of that name while it is read; UsageError if there is none."""
    if name == "-":
        yield sys.stdin
        return
    try:
        file = Path(name).open(encoding="utf-8-sig", newline="")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from error
    with file:
        yield file


def csv_rows(name: str, file: TextIO) -> Iterator[str]:
    """One JSON object a row. Raises UsageError at the first row that doesn't fit its header."""
    reader = csv.reader(file, strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise UsageError(f"{name}:1: no header line")
        _refuse_repeats(name, header)
        for row in reader:
            if row:
                yield _row(name, reader.line_num, header, row)
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{name}:{reader.line_num + 1}: {error}") from error


def _refuse_repeats(name: str, header: list[str]) -> None:
    repeated = [column for i, column in enumerate(header) if column in header[:i]]
    if repeated:
        raise UsageError(f"{name}:1: column {repeated[0]!r} stands twice in the header")


def _row(name: str, line: int, header: list[str], row: list[str]) -> str:
    if len(row) != len(header):
        raise UsageError(f"{name}:{line}: {len(row)} values for {len(header)} columns")
    return json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False)


def json_lines(name: str, file: TextIO) -> Iterator[str]:
    """Each line that is not empty, checked to be JSON. Raises UsageError at the first that is not."""
    line = 0
    try:
        for line, raw in enumerate(file, 1):  # noqa: B007 - read by the handler below
            text = raw.strip()
            if text:
                json.loads(text)
                yield text
    except json.JSONDecodeError as error:
        raise UsageError(f"{name}:{line}:{error.colno}: no JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}:{line + 1}: {error}") from error
