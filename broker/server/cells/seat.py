"""One of several cells as the process of a member of a cluster has it.

While this member doesn't own the cell, clients who come to the shared ports and other cells of this machine
are passed on to the member that does.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from broker.config.broker import Settings
from broker.config.cluster import Cluster
from broker.errors import NotFoundError, OperatorError
from broker.manage.cells import NodeMove
from broker.server.cells import messages
from broker.server.cells.directory import CellDirectory
from broker.server.cells.place import CellPlace
from broker.server.cluster.header import NEIGHBOURS
from broker.server.cluster.relay import Page, RelayListener

# A process with this status is to be started again at once: its member has let go of the cell.
BEGIN_ANEW = 75
# Cells that this member owns accept their clients themselves; one that it doesn't own takes who is left.
LATE_NS = 30_000_000


class NeighbourMessages:
    """First messages of other cells of this machine; implements ``relay.FirstMessage``."""

    def missing_bytes(self, data: bytes) -> int:
        """Return how many bytes it lacks; MessageError if it can't become one."""
        return messages.missing_bytes(data)

    def answer(self, message: bytes) -> bytes:
        """Refuse a client's socket, which can't go to another machine: its links are passed on instead."""
        fields, _ = messages.read(message)
        return messages.REFUSED if fields["kind"] == messages.CONNECTION else b""


@dataclass(frozen=True, slots=True)
class CellSeat:
    """The place of a cell, and what its member needs of it. ``whole`` is the section of all cells."""

    place: CellPlace
    directory: CellDirectory
    whole: Cluster

    def listeners(self, settings: Settings, page: Page | None) -> list[RelayListener]:
        """Return the ports at which a standby passes clients and other cells on, by sockets of its own."""
        found = [
            RelayListener(str(each), each.host, each.port, sock=_copy(fd), late_ns=LATE_NS)
            for each, fd in zip(settings.listeners, self.place.listeners, strict=True)
        ]
        http = settings.http
        found.append(
            RelayListener(http.url, http.host, http.port, page, sock=_copy(self.place.http), late_ns=LATE_NS)
        )
        neighbours = RelayListener(
            NEIGHBOURS, "", 0, message=NeighbourMessages(), sock=_copy(self.place.neighbours)
        )
        return [*found, neighbours]

    def tell_ready(self) -> None:
        """Tell the supervisor that the cell can be reached, which it can be by a standby, too."""
        with suppress(OSError):
            os.write(self.place.ready, b"!")
        os.close(self.place.ready)

    def beat(self) -> None:
        """Tell the supervisor that the process goes on."""
        # A supervisor that stands still reads nothing; this process ends where it is gone.
        with suppress(OSError):
            os.write(self.place.pulse, b".")


class NoMover:
    """Refuses to move nodes between cells of a cluster; implements ``manage.cells.NodeMover``."""

    def begin(self, name: str, cell: int, wait_ms: int) -> NodeMove:
        """Raise OperatorError."""
        raise OperatorError(
            f"'{name}' stays in its cell: in a cluster queues don't move between cells yet, only cells"
            " between members"
        )

    def status(self, name: str) -> NodeMove:
        """Raise NotFoundError."""
        raise NotFoundError(f"'{name}' wasn't moved: in a cluster queues don't move between cells yet")


def _copy(fd: int) -> socket.socket:
    return socket.socket(fileno=os.dup(fd))
