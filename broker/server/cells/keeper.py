"""The keeper of the directory of cells: the one writer of its table, in the supervisor's process.

A name changes its cell by a line in the table's file and by nothing else: before it is written the cell that
had the node has it, afterwards the other one, whoever is killed in between. So each decision is taken once,
here, and a move that was given up can't be done any more. No socket, no clock: ``send`` passes lines on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.server.cells.directory import CellDirectory
from broker.server.cells.layout import mark_drained
from broker.server.cells.table import (
    NamedPlace,
    PlacementTable,
    kept_where_they_are,
    read_table,
    write_table,
)

log = logging.getLogger("sluice.cells")

PROPOSED = "directory-proposed.json"

Line = Mapping[str, Any]
# Passes a line to a cell.
Send = Callable[[int, Line], None]


class DirectoryKeeper:
    """Keeps the table of the directory in ``data`` for ``cells`` cells.

    ``table`` is the one in force. ``send`` passes a line to a cell, and drops it where that doesn't run: one
    that is started reads the file.
    """

    def __init__(self, data: Path, cells: int, send: Send) -> None:
        self._data = data
        self._cells = cells
        self._send = send
        self.table = read_table(data, cells)
        self._given_up: set[str] = set()
        # The table that cells are asked about, and the keys that each has told to stay with it.
        self._proposed: PlacementTable | None = None
        self._round = 0
        self._told: dict[int, list[str]] = {}

    # --- another way to share names out

    @property
    def is_deciding(self) -> bool:
        """Whether cells are being asked about another table."""
        return self._proposed is not None

    def propose(self, table: PlacementTable) -> Path:
        """Ask all cells what would have to be elsewhere by a table; return its file. It is in force once all
        have answered: names of nodes that are there stay where they are. OSError where it can't be written.
        """
        path = write_table(self._data, table, PROPOSED)
        self._proposed = table
        self._round += 1
        self._told = {}
        for cell in range(self._cells):
            self._send(cell, {"propose": self._round})
        return path

    def cancel(self, reason: str) -> None:
        """Leave the table as it is."""
        self._proposed = None
        log.error("where policies say that queues belong isn't taken over: %s", reason)
        for cell in range(self._cells):
            self._send(cell, {"cancel": self._round})

    def _on_told(self, cell: int, line: Line) -> None:
        if self._proposed is None or line.get("round", self._round) != self._round:
            return
        self._told[cell] = [str(each) for each in line["keys"]]
        if len(self._told) < self._cells:
            return
        proposed, self._proposed = self._proposed, None
        names = dict(self.table.names)
        for each, keys in self._told.items():
            names.update(kept_where_they_are(keys, each))
        bare = PlacementTable(proposed.cells, proposed.patterns)
        patterns = CellDirectory(0, self._cells, bare)
        # A name that would be there anyway needs no line, unless a cell may yet ask about its move.
        needed = {key: each for key, each in names.items() if each.move or patterns.cell_of(key) != each.cell}
        try:
            self._take(PlacementTable(proposed.cells, proposed.patterns, needed, self.table.edition + 1))
        except OSError as fault:
            self.cancel(f"the directory can't be written: {fault.strerror}")
        (self._data / PROPOSED).unlink(missing_ok=True)

    # --- lines of cells

    def on_line(self, cell: int, line: Line) -> None:
        """Do what a cell asks for."""
        kind = line.get("do")
        if kind == "told":
            self._on_told(cell, line)
        elif kind == "commit":
            self._send(cell, {"answer": line["id"], **self._commit(cell, line)})
        elif kind == "drained":
            # A name that is to be made again is made where the others look for it.
            self._on_drained(cell)
        elif kind == "give-up":
            self._send(cell, {"answer": line["id"], "done": self._give_up(str(line["move"]))})
        else:
            log.error("cell %d asks for %r, which the supervisor doesn't know", cell, kind)

    def _on_drained(self, cell: int) -> None:
        left = {key: place for key, place in self.table.names.items() if place.cell != cell}
        try:
            self._take(replace(self.table, names=left, edition=self.table.edition + 1))
            mark_drained(self._data, cell)
        except OSError as fault:
            log.error("that cell %d has no queue any more can't be noted: %s", cell, fault)
        else:
            log.warning("cell %d has no queue any more: the next start leaves it out", cell)

    def _commit(self, cell: int, line: Line) -> dict[str, object]:
        """Decide that a name belongs to another cell from now on, and tell all cells, that one first."""
        key, to, move = str(line["key"]), int(line["to"]), str(line["move"])
        refusal = ""
        if move in self._given_up:
            refusal = "the other cell has given it up"
        elif self.is_deciding:
            refusal = "where queues belong is being decided anew: try again"
        elif not 0 <= to < self._cells:
            refusal = f"there is no cell {to}"
        elif key in self.table.names if line.get("new") else self._cell_of(key) != cell:
            refusal = f"'{key}' belongs to cell {self._cell_of(key)}"
        if refusal:
            return {"done": False, "reason": refusal}
        try:
            self._take(self.table.with_names({key: NamedPlace(to, move)}), first=to)
        except OSError as fault:
            return {"done": False, "reason": f"the directory can't be written: {fault.strerror}"}
        log.info("'%s' belongs to cell %d from now on, and not to cell %d", key, to, cell)
        return {"done": True}

    def _give_up(self, move: str) -> bool:
        """Decide that a move isn't done, unless it is: whether it is."""
        if any(place.move == move for place in self.table.names.values()):
            return True
        self._given_up.add(move)
        return False

    # --- inside

    def _cell_of(self, key: str) -> int:
        return CellDirectory(0, self._cells, self.table).cell_of(key)

    def _take(self, table: PlacementTable, first: int = 0) -> None:
        try:
            write_table(self._data, table)
        except OSError as fault:
            if read_table(self._data, self._cells).edition == table.edition:
                # It is there, and may be gone after a power cut: nobody may act by it, nor by the one before.
                log.critical("the directory of cells can't be synced: %s; stopping all", fault)
                raise SystemExit(1) from fault
            raise
        self.table = table
        for cell in sorted(range(self._cells), key=lambda each: each != first):
            self._send(cell, {"directory": table.edition})
