"""The data directory of several cells: a folder a cell, and a file that says how many there are.

A queue is found by its name and the number of cells alone, so that number is part of the data: nothing starts
on a directory with another one, and a single broker's data is left alone.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from broker.config.broker import Settings
from broker.errors import OperatorError

MARKER = "cells.json"
VERSION = 1
# What may stand in a directory that holds no data: a file system's own, and a marker that was being written.
_STRANGERS = frozenset({"lost+found", f".{MARKER}"})


def cells_of(settings: Settings) -> int:
    """Return how many cells the settings ask for: for `auto` one a processor that this process may use."""
    return settings.cells or len(os.sched_getaffinity(0))


def folder_of(data: Path, cell: int) -> Path:
    """Return the data directory of one cell."""
    return data / f"cell-{cell}"


def socket_of(data: Path, cell: int) -> Path:
    """Return the socket at which a cell hears the others."""
    return data / f"cell-{cell}.sock"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and to the disk. OSError where it can't be."""
    made = path.with_name(f".{path.name}")
    with made.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def cells_in(data: Path) -> int:
    """Return how many cells a data directory holds; 0 where it isn't one of several cells.

    OperatorError where its marker can't be read.
    """
    marker = data / MARKER
    try:
        found = json.loads(marker.read_text())
        version, cells = found["version"], found["cells"]
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise OperatorError(f"{marker}: can't be read: {fault}") from fault
    if version != VERSION or type(cells) is not int or cells < 2:
        raise OperatorError(f"{marker}: this version of sluice can't read it")
    return cells


def check_single(data: Path) -> None:
    """Raise OperatorError where the directory is one of several cells, and a single broker is to start."""
    cells = cells_in(data)
    if cells:
        raise OperatorError(_other_number(data, cells, 1))


class CellsDirectory:
    """The data directory of several cells, locked until ``close``.

    Made where it isn't there. OperatorError where it holds anything else, or another supervisor has it.
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
            self._claim(data, cells)
        except OperatorError:
            self.close()
            raise

    def close(self) -> None:
        """Let others have it."""
        os.close(self._lock)

    def _claim(self, data: Path, cells: int) -> None:
        there = cells_in(data)
        if there and there != cells:
            raise OperatorError(_other_number(data, there, cells))
        if not there:
            _check_empty(data)
            _write_marker(data, cells)
        for cell in range(cells):
            folder_of(data, cell).mkdir(exist_ok=True)


def _check_empty(data: Path) -> None:
    found = sorted(each.name for each in data.iterdir() if each.name not in _STRANGERS)
    if found:
        raise OperatorError(
            f"{data}: it holds {found[0]!r} and isn't a directory of cells: a single broker's queues aren't"
            " spread over cells yet; start with --cells 1, or with an empty directory"
        )


def _write_marker(data: Path, cells: int) -> None:
    """Write it whole or not at all, and to the disk before any cell has data."""
    write_whole(data / MARKER, json.dumps({"version": VERSION, "cells": cells}).encode() + b"\n")


def _other_number(data: Path, there: int, wanted: int) -> str:
    return (
        f"{data}: it holds {there} cells, and --cells is {wanted}: queues aren't moved between cells yet;"
        f" start with --cells {there}"
    )
