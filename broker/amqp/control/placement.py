"""The cell that a link belongs to, where a broker has several: here, or the connection goes there."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from proton import Link, Terminus

from broker.amqp.control.addresses import inside, parsed
from broker.amqp.control.client import ClientDetails
from broker.amqp.control.live import LiveConnection
from broker.amqp.links.connection import ConnectionIO
from broker.config.patterns import is_pattern
from broker.errors import PeerError

# The target of a cell's own link from the management of another one: answers go by it whose node isn't there.
CLIENT_CELL = "$client-cell"


class NodeDirectory(Protocol):
    """Where nodes are, in which of several cells; this is the cell ``own``."""

    own: int
    cells: int

    def cell_of(self, name: str) -> int:
        """Return the cell of a node's name."""
        ...

    def split(self, address: str) -> tuple[int | None, str]:
        """Split an address that names its cell into that and the rest; ValueError if there is none such."""
        ...


class Handovers(Protocol):
    """Hands connections over to other cells (``loop.handover.ConnectionHandovers``)."""

    def begin(self, peer: LiveConnection, cell: int) -> bool:
        """Hand a connection over to a cell; whether that may be."""
        ...

    def settle(self, peer: LiveConnection) -> None:
        """Let a connection stay here."""
        ...


class NeighbourStream(Protocol):
    """A connection to another cell, as the loop sees it (``control.foreign.NeighbourConnection``)."""

    sock: socket.socket
    wire: ConnectionIO

    def on_readable(self) -> None:
        """Read what has come, or its end."""
        ...

    def on_writable(self) -> None:
        """Write more of what there is."""
        ...

    def flush(self) -> bool:
        """Write what there is; whether the socket is full."""
        ...

    def crash(self, fault: BaseException) -> None:
        """End after a bug of ours."""
        ...


class NeighbourSockets(Protocol):
    """The loop's connections to other cells (``loop.neighbours.NeighbourLoop``)."""

    by_fd: dict[int, NeighbourStream]

    def dial(self, owner: LiveConnection, cell: int) -> socket.socket | None:
        """Connect to a cell in the name of a client; None where it can't be reached."""
        ...

    def watch(self, connection: NeighbourStream) -> None:
        """Have a new connection read and written."""
        ...

    def forget(self, connection: NeighbourStream) -> None:
        """Let go of a connection whose socket is about to be closed."""
        ...

    def on_ready(self, fd: int, mask: int) -> None:
        """Handle what epoll has said of a connection."""
        ...

    def flush(self, fd: int) -> None:
        """Write what a connection has to say, if the descriptor is one's."""
        ...


class LinkPlacement:
    """Decides for each link of one connection whether it is attached here.

    ``hand_over`` begins to hand the connection over to a cell, and says whether it can; ``settle`` is called
    once it stays.
    """

    __slots__ = ("_cells", "_client", "_hand_over", "_is_settled", "_leaves", "_settle")

    def __init__(
        self,
        cells: NodeDirectory,
        client: ClientDetails,
        hand_over: Callable[[int], bool],
        settle: Callable[[], None],
    ) -> None:
        self._cells = cells
        self._client = client
        self._hand_over = hand_over
        self._settle = settle
        self._is_settled = False
        self._leaves = False

    def place_of(self, link: Link) -> tuple[int, str] | None:
        """Return the cell of a link's node and the node's address there; None: the connection is handed over.

        PeerError where there is no such place.
        """
        if self._leaves:
            return None
        cell, address = self._cell_of(link)
        if not self._is_settled:
            if cell != self._cells.own and self._hand_over(cell):
                self._leaves = True
                return None
            self._is_settled = True
            self._settle()
        return cell, address

    def is_here(self, cell: int) -> bool:
        """Whether a cell is this one."""
        return cell == self._cells.own

    def others(self) -> list[int]:
        """Return all cells but this one."""
        return [cell for cell in range(self._cells.cells) if cell != self._cells.own]

    def _cell_of(self, link: Link) -> tuple[int, str]:
        terminus = link.remote_source if link.is_sender else link.remote_target
        if terminus.type == Terminus.COORDINATOR or terminus.dynamic or not terminus.address:
            return self._cells.own, ""
        try:
            cell, address = self._cells.split(terminus.address)
        except ValueError as fault:
            raise PeerError("amqp:not-found", str(fault)) from fault
        if cell is not None:
            return cell, address
        name = inside(self._client.host, parsed(address).name)
        if link.is_sender and is_pattern(name):
            raise PeerError(
                "amqp:not-implemented",
                f"'{address}' stands for many topics, which are in several cells: such a subscription isn't"
                " possible yet where there are several; subscribe to each topic",
            )
        return self._cells.cell_of(name), address
