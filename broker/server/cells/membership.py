"""A cell's part in what all cells decide together: which table of the directory is in force."""

from __future__ import annotations

import logging
from pathlib import Path

from broker.errors import OperatorError
from broker.manage.names import is_reserved
from broker.server.cells.control import CellControl, Line
from broker.server.cells.directory import CellDirectory
from broker.server.cells.keeper import PROPOSED
from broker.server.cells.moves import CellMoves
from broker.server.cells.place import CellPlace
from broker.server.cells.table import read_proposed
from broker.server.server import Server

log = logging.getLogger("sluice.cells")


class CellMembership:
    """Answers what the supervisor asks of a cell, and has it go by what was decided."""

    def __init__(
        self, server: Server, place: CellPlace, directory: CellDirectory, control: CellControl
    ) -> None:
        self._server = server
        self._place = place
        self._directory = directory
        self._control = control
        self._moves = CellMoves(server, place, directory, control)

    def settle(self) -> None:
        """Before it serves: say which names stay here by the proposed table, and wait for the decision.

        OperatorError where the supervisor is gone.
        """
        if self._place.proposed:
            self._answer({})
            while self._directory.proposed is not None:
                line = self._control.read()
                if line is None:
                    raise OperatorError("the supervisor is gone")
                self._on_line(line)
        self._moves.resolve()
        # What was said of it meanwhile was dropped.
        self._directory.take(self._place.read_table())
        if self._server.neighbour_port is not None:
            self._server.neighbour_port.on_move = self._moves.receive
        self.tell_misplaced()

    def start(self) -> None:
        """Hear the supervisor from now on, and operators who move queues."""
        self._server.model.cells.mover = self._moves
        self._server.on_reloaded = self._reloaded
        self._control.on_line = lambda line: self._server.reactor.post(lambda: self._on_line(line))
        self._control.start()

    def names(self) -> list[str]:
        """Return the names of the nodes that are here, those that were set aside included."""
        model = self._server.model
        names = [*self._server.engine.topology.nodes, *(each.name for each in model.aside.views())]
        return [each for each in names if not is_reserved(each)]

    def tell_misplaced(self) -> None:
        """Log the nodes that are here though a policy says that they belong to another cell."""
        for node in list(self._server.engine.topology.nodes.values()):
            cell = node.settings.cell
            if cell >= 0 and cell != self._place.number and self._directory.cell_of(node.name) != cell:
                log.warning(
                    "'%s' is in cell %d and stays there, though %s says cell: %d: it was there before"
                    " the policy; to have it there, drain and delete it, and make it again",
                    *(node.name, self._place.number, node.origins.get("cell") or "a policy", cell),
                )

    def _reloaded(self) -> None:
        """Have the supervisor look at policies too, where somebody else had this cell read them again."""
        self._control.tell({"do": "places"})
        self.tell_misplaced()

    def _on_line(self, line: Line) -> None:
        """Do what the supervisor says; on the loop's thread, or before that runs."""
        if "directory" in line:
            self._directory.take(self._place.read_table())
            self._moves.on_directory()
        elif "propose" in line:
            self._answer({"round": line["propose"]})
        elif "cancel" in line:
            self._directory.proposed = None

    def _answer(self, fields: Line) -> None:
        proposed = read_proposed(Path(self._place.data) / PROPOSED)
        self._directory.proposed = proposed
        keys = self._directory.leaving(self.names(), proposed)
        self._control.tell({"do": "told", "keys": sorted(keys), **fields})
