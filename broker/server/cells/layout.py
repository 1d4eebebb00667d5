"""The data directory of several cells: a folder a cell, and a file that says how many there are.

A queue is found by its name and the table of the directory (``table``), in which it stays where it is when
the number of cells changes:

- more cells than before begin empty;
- fewer: those that go run on until they have given their queues away (``drained``), and are left out by the
  next start;
- a single broker's data becomes that of cell 0, and that of cell 0 a single broker's again once all others
  are left out.

Each step is written down before it is taken, so that a start after a crash goes on with it.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from broker.config.broker import Settings
from broker.errors import OperatorError
from broker.server.cells import table
from broker.server.cells.files import sync_folder, write_whole
from broker.server.cells.table import PlacementTable, write_table
from broker.store.lock import locked

MARKER = "cells.json"
VERSION = 1
# A single broker's data has this file.
SINGLE = "directory.mdb"
BACKUPS = "backups"
# What may stand in a directory that holds no data: a file system's own, and a file that was being written.
_STRANGERS = frozenset({"lost+found", f".{MARKER}", f".{table.NAME}", table.NAME})

# The files of a single broker's data are on their way to cell 0's folder, or back.
ADOPTING, LEAVING = "adopting", "leaving"


@dataclass(frozen=True, slots=True)
class CellsMarker:
    """The marker of a directory: how many cells there are, which of them have given everything away, and what
    has been begun.
    """

    cells: int
    drained: frozenset[int] = frozenset()
    begun: str = ""


def cells_of(settings: Settings) -> int:
    """Return how many cells the settings ask for: for `auto` one a processor that this process may use."""
    return settings.cells or len(os.sched_getaffinity(0))


def folder_of(data: Path, cell: int) -> Path:
    """Return the data directory of one cell."""
    return data / f"cell-{cell}"


def socket_of(data: Path, cell: int) -> Path:
    """Return the socket at which a cell hears the others."""
    return data / f"cell-{cell}.sock"


def read_marker(data: Path) -> CellsMarker | None:
    """Read the marker of a data directory; None where it isn't one of several cells.

    OperatorError where it can't be read.
    """
    marker = data / MARKER
    try:
        found = json.loads(marker.read_text())
        version, cells = found["version"], found["cells"]
        drained, begun = frozenset(found.get("drained", ())), found.get("begun", "")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise OperatorError(f"{marker}: can't be read: {fault}") from fault
    if version != VERSION or type(cells) is not int or cells < 2 or begun not in ("", ADOPTING, LEAVING):
        raise OperatorError(f"{marker}: this version of sluice can't read it")
    return CellsMarker(cells, drained, begun)


def cells_in(data: Path) -> int:
    """Return how many cells a data directory holds; 0 where it isn't one of several cells.

    OperatorError where its marker can't be read.
    """
    found = read_marker(data)
    return 0 if found is None else found.cells


def mark_drained(data: Path, cell: int) -> None:
    """Note that a cell has given everything away: the next start may leave it out."""
    found = read_marker(data)
    if found is not None and cell not in found.drained:
        _write_marker(data, replace(found, drained=found.drained | {cell}))


class CellsDirectory:
    """The data directory for so many cells, locked until ``close``. ``cells`` are those that are to run: more
    than asked for, as long as some that are to go have queues.

    Made where it isn't there. OperatorError where it holds anything else, or somebody else has it.
    """

    def __init__(self, data: Path, cells: int) -> None:
        self.path = data
        data.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            os.close(self._lock)
            raise OperatorError(f"{data}: another broker uses it") from fault
        try:
            self.cells = self._claim(data, cells)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others have it."""
        os.close(self._lock)

    def _claim(self, data: Path, cells: int) -> int:
        marker = read_marker(data)
        if marker is None and (data / SINGLE).is_file():
            marker = _begin_adoption(data, cells) if cells > 1 else None
        elif marker is None:
            _check_empty(data)
            marker = CellsMarker(cells)
            if cells > 1:
                _write_marker(data, marker)
        if marker is None or cells == marker.cells == 1:
            return 1
        if marker.begun == ADOPTING:
            _move_single(data, data, folder_of(data, 0))
            marker = replace(marker, begun="")
            _write_marker(data, marker)
        if marker.begun == LEAVING or (cells == 1 and marker.drained >= set(range(1, marker.cells))):
            _leave(data, marker)
            return self._claim(data, cells)
        if cells > marker.cells or marker.drained & set(range(cells)):
            marker = _grown(data, marker, cells)
        elif cells < marker.cells and marker.drained >= set(range(cells, marker.cells)):
            marker = CellsMarker(cells, marker.drained & set(range(cells)))
            _write_marker(data, marker)
        for cell in range(marker.cells):
            folder_of(data, cell).mkdir(exist_ok=True)
        return marker.cells


def _grown(data: Path, marker: CellsMarker, cells: int) -> CellsMarker:
    """Write down that there are more cells; the table goes by as many as before until all have been asked."""
    _keep_table(data, marker.cells)
    grown = CellsMarker(max(cells, marker.cells), marker.drained - set(range(cells)))
    _write_marker(data, grown)
    return grown


def _begin_adoption(data: Path, cells: int) -> CellsMarker:
    with locked(data):
        write_table(data, PlacementTable(1))
        marker = CellsMarker(cells, begun=ADOPTING)
        _write_marker(data, marker)
    return marker


def _leave(data: Path, marker: CellsMarker) -> None:
    """Make cell 0's data a single broker's."""
    _write_marker(data, replace(marker, begun=LEAVING))
    if folder_of(data, 0).is_dir():
        _move_single(data, folder_of(data, 0), data)
        folder_of(data, 0).rmdir()
    for name in (table.NAME, MARKER):
        (data / name).unlink(missing_ok=True)
    sync_folder(data)


def _move_single(data: Path, source: Path, target: Path) -> None:
    """Move the files of a single broker's data, those that aren't there yet."""
    target.mkdir(exist_ok=True)
    for each in sorted(source.iterdir()):
        is_ours = source == data and (
            each.name in (MARKER, table.NAME, BACKUPS, *_STRANGERS) or each.name.startswith("cell-")
        )
        if not is_ours:
            each.replace(target / each.name)
    sync_folder(target)
    sync_folder(source)


def _check_empty(data: Path) -> None:
    found = sorted(each.name for each in data.iterdir() if each.name not in _STRANGERS)
    if found:
        raise OperatorError(
            f"{data}: it holds {found[0]!r}, and is neither a directory of cells nor a broker's:"
            " start with an empty directory"
        )


def _keep_table(data: Path, cells: int) -> None:
    if not (data / table.NAME).exists():
        write_table(data, PlacementTable(cells))


def _write_marker(data: Path, marker: CellsMarker) -> None:
    """Write it whole or not at all, and to the disk before any cell has data."""
    words: dict[str, object] = {"version": VERSION, "cells": marker.cells}
    if marker.drained:
        words["drained"] = sorted(marker.drained)
    if marker.begun:
        words["begun"] = marker.begun
    write_whole(data / MARKER, json.dumps(words).encode() + b"\n")
