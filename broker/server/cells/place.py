"""The place of a cell among the cells of one machine, as its supervisor tells it to the cell's process."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from broker.config.broker import Settings
from broker.server.cells.directory import CellDirectory
from broker.server.cells.layout import folder_of, socket_of
from broker.server.cells.table import PlacementTable, read_table

VARIABLE = "SLUICE_CELL_PLACE"


@dataclass(frozen=True, slots=True)
class CellPlace:
    """Cell ``number`` of ``cells``. ``name`` is the container-id that all of them bear.

    Inherited descriptors: ``listeners`` listen for clients, in the order of the settings, ``http`` for HTTP
    and ``neighbours`` for the other cells; ``ready`` is written to once the cell serves, ``pulse`` by its
    loop each second; ``life`` ends when the supervisor does; ``control`` is a line to it and back. ``data``
    is the directory that has all cells. ``proposed`` is the file of a table that all cells are asked about
    before any serves, empty for none.
    """

    number: int
    cells: int
    name: str
    data: str
    listeners: tuple[int, ...]
    http: int
    neighbours: int
    ready: int
    pulse: int
    life: int
    control: int
    proposed: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> CellPlace | None:
        """Read the place of this process; None where it is no cell of several."""
        text = environment.get(VARIABLE, "")
        if not text:
            return None
        found = json.loads(text)
        return cls(**{**found, "listeners": tuple(found["listeners"])})

    def written(self) -> str:
        """Return the place as its variable has it."""
        return json.dumps(asdict(self))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that the cell's process inherits."""
        return (*self.listeners, self.http, self.neighbours, self.ready, self.pulse, self.life, self.control)

    def read_directory(self) -> CellDirectory:
        """Return the directory of nodes as this cell asks it. OperatorError where it can't be read."""
        return CellDirectory(self.number, self.cells, self.read_table())

    def read_table(self) -> PlacementTable:
        """Read the table that is in force. OperatorError where it can't be read."""
        return read_table(Path(self.data), self.cells)

    def socket_of(self, cell: int) -> Path:
        """Return the path of the socket at which a cell hears the others."""
        return socket_of(Path(self.data), cell)


@dataclass(frozen=True, slots=True)
class InheritedSockets:
    """The sockets of a cell that listen already: for AMQP, for HTTP, and for other cells."""

    listeners: tuple[socket.socket, ...]
    http: socket.socket
    neighbours: socket.socket

    @classmethod
    def of(cls, place: CellPlace) -> InheritedSockets:
        """Take them over, once in a process."""
        listeners = tuple(socket.socket(fileno=each) for each in place.listeners)
        return cls(listeners, socket.socket(fileno=place.http), socket.socket(fileno=place.neighbours))


def settings_of(settings: Settings, place: CellPlace, directory: CellDirectory) -> Settings:
    """Return one cell's settings: its own folder, and of routes, bridges and channels those of its nodes."""

    def is_here(name: str) -> bool:
        return directory.cell_of(name) == place.number

    return replace(
        settings,
        cells=place.cells,
        cluster=settings.cluster.of_cell(place.number),
        data=folder_of(settings.data, place.number),
        backup_directory=settings.backups / f"cell-{place.number}",
        routes=tuple(each for each in settings.routes if is_here(each.local)),
        bridges=tuple(each for each in settings.bridges if is_here(each.source)),
        channels=tuple(each for each in settings.channels if is_here(each.topic)),
    )
