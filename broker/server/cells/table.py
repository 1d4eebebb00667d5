"""The table behind the directory of cells: which names are elsewhere than the hash of their name says.

It is a file in the directory of all cells. The supervisor alone writes it, whole or not at all, and to the
disk before anybody acts by it; the cells read it. Where it isn't there the hash alone decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from broker.config.policies import PolicySet
from broker.errors import OperatorError
from broker.server.cells.files import write_whole

NAME = "directory.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """The cell of one name; ``move`` is the id of the move that brought it there, '' for one that stayed."""

    cell: int
    move: str = ""


@dataclass(frozen=True, slots=True)
class PlacementTable:
    """Which cell each name belongs to; a value, replaced as a whole.

    1. ``names`` has those of which it was decided one by one, by their keys (``directory.key_of``);
    2. ``patterns`` those of policies with a ``cell:``, the most specific first;
    3. all others are shared out among the first ``cells`` cells by their hash.

    ``edition`` rises with each change.
    """

    cells: int
    patterns: tuple[tuple[str, int], ...] = ()
    names: Mapping[str, NamedPlace] = field(default_factory=dict)
    edition: int = 0

    def with_names(self, places: Mapping[str, NamedPlace]) -> PlacementTable:
        """Return the next edition, in which these names have these places."""
        return replace(self, names={**self.names, **places}, edition=self.edition + 1)

    def says_like(self, other: PlacementTable) -> bool:
        """Return whether another table shares out names that are in neither alike."""
        return self.cells == other.cells and self.patterns == other.patterns

    def encoded(self) -> bytes:
        """Return it as its file has it."""
        words = {
            "version": VERSION,
            "edition": self.edition,
            "cells": self.cells,
            "patterns": self.patterns,
            "names": {key: [place.cell, place.move] for key, place in sorted(self.names.items())},
        }
        return json.dumps(words, indent=1).encode() + b"\n"


def patterns_of(policies: PolicySet, cells: int) -> tuple[tuple[str, int], ...]:
    """Return the patterns with a ``cell:``, the most specific first.

    OperatorError with file and line where one names a cell that isn't among ``cells``.
    """
    found: list[tuple[str, int]] = []
    for policy in policies.policies:
        for setting in policy.settings:
            if setting.name != "cell" or policy.of_subscriptions:
                continue
            cell = int(setting.value)
            if cell >= cells:
                raise OperatorError(
                    f"{setting.origin}: cell: {cell} of '{policy.pattern.text}', and there are"
                    f" {cells} cells, numbered from 0"
                )
            found.append((policy.pattern.text, cell))
    return tuple(found)


def read_table(data: Path, cells: int, name: str = NAME) -> PlacementTable:
    """Read the table of a directory; where there is none, that of ``cells`` cells with the hash alone.

    OperatorError where it can't be read.
    """
    return _read(data / name) or PlacementTable(cells)


def read_proposed(path: Path) -> PlacementTable:
    """Read a table that isn't in force. OperatorError where it can't be read, or isn't there."""
    found = _read(path)
    if found is None:
        raise OperatorError(f"{path}: it is gone")
    return found


def write_table(data: Path, table: PlacementTable, name: str = NAME) -> Path:
    """Write a table, whole or not at all, and to the disk; return its path. OSError where it can't be."""
    write_whole(data / name, table.encoded())
    return data / name


def kept_where_they_are(keys: Iterable[str], cell: int) -> dict[str, NamedPlace]:
    """Return the places of names that stay in a cell."""
    return {key: NamedPlace(cell) for key in keys}


def decoded_table(data: bytes, where: str) -> PlacementTable:
    """Read a table as ``encoded`` has written it. OperatorError with ``where`` it stands if it is none."""
    try:
        words = json.loads(data)
        if words["version"] != VERSION:
            raise OperatorError(f"{where}: this version of sluice can't read it")
        return PlacementTable(
            int(words["cells"]),
            tuple((str(pattern), int(cell)) for pattern, cell in words["patterns"]),
            {str(key): NamedPlace(int(cell), str(move)) for key, (cell, move) in words["names"].items()},
            int(words["edition"]),
        )
    except (ValueError, KeyError, TypeError) as fault:
        raise OperatorError(f"{where}: can't be read: {fault}") from fault


def _read(path: Path) -> PlacementTable | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise OperatorError(f"{path}: can't be read: {fault}") from fault
    return decoded_table(data, str(path))
