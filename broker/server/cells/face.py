"""The other cells of a machine as the HTTP face of one asks them."""

from __future__ import annotations

import socket

from broker.server.cells import messages
from broker.server.cells.directory import CellDirectory
from broker.server.cells.place import CellPlace
from broker.server.cells.sockets import connected


class HttpNeighbours:
    """Where nodes are, and the way to other cells' HTTP."""

    def __init__(self, place: CellPlace, directory: CellDirectory) -> None:
        self._place = place
        self._directory = directory
        self.number = place.number
        self.cells = place.cells

    def cell_of(self, name: str) -> int:
        """Return the cell of a node's name."""
        return self._directory.cell_of(name)

    def split(self, address: str) -> tuple[int | None, str]:
        """Split an address that names its cell into that and the rest; ValueError where there is none."""
        return self._directory.split(address)

    def dial(self, cell: int) -> socket.socket:
        """Connect to a cell for one request over HTTP, without waiting; OSError where it can't be reached.

        The supervisor listens for it: a cell that is being restarted answers once it serves again.
        """
        sock = connected(self._place.socket_of(cell), 0.0)
        try:
            sock.sendall(messages.written(messages.HTTP, {}))
        except OSError:
            sock.close()
            raise
        return sock
