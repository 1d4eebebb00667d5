"""A cell's part in what all cells decide together: which table of the directory is in force."""

from __future__ import annotations

import logging
from pathlib import Path

from broker.engine.node import Node, is_empty
from broker.errors import OperatorError
from broker.manage.cells import WAIT_MS
from broker.manage.names import is_reserved
from broker.server.cells.control import CellControl, Line
from broker.server.cells.directory import CellDirectory
from broker.server.cells.keeper import PROPOSED
from broker.server.cells.moves import CellMoves
from broker.server.cells.place import CellPlace
from broker.server.cells.table import PlacementTable, read_proposed
from broker.server.server import Server
from broker.units import SECOND_NS

# When a node that couldn't be given away is tried again.
RETRY_NS = 10 * SECOND_NS

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
        # Of a cell that goes: when each of its nodes may be tried again, and whether it has told that none is
        # left.
        self._tried: dict[str, int] = {}
        self._is_drained = False

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
        self._directory.take(self._place.read_table())
        self._moves.resolve()
        # What was said of it meanwhile was dropped.
        self._directory.take(self._place.read_table())
        if self._server.neighbour_port is not None:
            self._server.neighbour_port.on_move = self._moves.receive
        self.tell_misplaced()

    def start(self) -> None:
        """Hear the supervisor from now on, and operators who move queues."""
        self._server.model.cells.mover = self._moves
        self._server.model.nodes.place_of = self._place_of
        self._server.on_reloaded = self._reloaded
        self._control.on_line = lambda line: self._server.reactor.post(lambda: self._on_line(line))
        self._control.start()
        if self._place.cells > self._directory.table.cells:
            self._server.reactor.post(lambda: self._drain(self._server.engine.turn.now_ns))

    def _is_misplaced(self, node: Node) -> bool:
        cell = node.settings.cell
        return cell >= 0 and cell != self._place.number and self._directory.cell_of(node.name) != cell

    def _place_of(self, node: Node) -> str:
        """Say what is to be known of a node's cell, for `why`."""
        if node.name in self._server.model.nodes.moving:
            return self._moves.sentence_of(node.name)
        if not self._is_misplaced(node):
            return ""
        origin = node.origins.get("cell") or "a policy"
        return (
            f" It is in cell {self._place.number}, though {origin} says cell: {node.settings.cell}, since it"
            f" was there before; 'sluice cluster move {node.name} {node.settings.cell}' moves it."
        )

    def _drain(self, now_ns: int) -> None:
        """Give the next node away where this is a cell that goes; once a second."""
        table = self._directory.table
        if self._place.number >= table.cells and not self._moves.is_busy:
            self._give_next_away(PlacementTable(table.cells, table.patterns), now_ns)
        self._server.reactor.at(now_ns + SECOND_NS, self._drain)

    def _give_next_away(self, bare: PlacementTable, now_ns: int) -> None:
        # Those to many topics have no topic here.
        names = [*self.names(), *self._server.engine.topology.subscriptions]
        if not names:
            if not self._is_drained:
                self._is_drained = True
                self._control.tell({"do": "drained"})
            return
        after = CellDirectory(self._place.number, self._place.cells, bare)
        for name in names:
            if self._tried.get(name, 0) > now_ns:
                continue
            self._tried[name] = now_ns + RETRY_NS
            try:
                self._give_away(name, after.cell_of(name))
            except OperatorError as fault:
                log.error("'%s' is in the way of leaving this cell out: %s", name, fault)
                continue
            return

    def _give_away(self, name: str, cell: int) -> None:
        """Give a node to its new cell. What bears another cell's name, dead letters above all, gets a name of
        its own: that cell may have such a node itself.
        """
        nodes = self._server.model.nodes
        is_owner = self._directory.cell_of(name) == self._place.number
        if is_owner and not self._moves.met_another(name):
            self._moves.begin(name, cell, WAIT_MS)
        elif is_empty(nodes.find(name)):
            nodes.delete(name)
        else:
            self._moves.begin_stray(name, cell, f"{name}.cell-{self._place.number}", WAIT_MS)

    def names(self) -> list[str]:
        """Return the names of the nodes that are here, those that were set aside included."""
        model = self._server.model
        names = [*self._server.engine.topology.nodes, *(each.name for each in model.aside.views())]
        return [each for each in names if not is_reserved(each)]

    def tell_misplaced(self) -> None:
        """Log the nodes that are here though a policy says that they belong to another cell."""
        for node in list(self._server.engine.topology.nodes.values()):
            cell = node.settings.cell
            if self._is_misplaced(node):
                log.warning(
                    "'%s' is in cell %d and stays there, though %s says cell: %d: it was there before;"
                    " 'sluice cluster move %s %d' moves it",
                    *(node.name, self._place.number, node.origins.get("cell") or "a policy", cell),
                    *(node.name, cell),
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
