"""The loop's share in connections to other cells: reading, writing, and their idle timeouts."""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Callable

from broker.amqp.control.live import LiveConnection
from broker.amqp.control.placement import NeighbourStream
from broker.amqp.loop.timers import Timers
from broker.units import SECOND_NS

log = logging.getLogger("sluice.amqp")

MILLISECOND_NS = 1_000_000

# Connects to a cell in the name of a client; None where it can't be reached.
Dial = Callable[[LiveConnection, int], socket.socket | None]


class NeighbourLoop:
    """The connections to other cells that this cell's clients have, by descriptor, until forgotten."""

    def __init__(self, epoll: select.epoll, timers: Timers) -> None:
        self.by_fd: dict[int, NeighbourStream] = {}
        self.dialled_by: Dial = lambda owner, cell: None
        self._epoll = epoll
        self._timers = timers
        self._armed: set[int] = set()

    def dial(self, owner: LiveConnection, cell: int) -> socket.socket | None:
        """Connect to a cell in the name of a client; None where it can't be reached."""
        return self.dialled_by(owner, cell)

    def watch(self, connection: NeighbourStream) -> None:
        """Have a new connection read and written."""
        fd = connection.sock.fileno()
        self.by_fd[fd] = connection
        self._epoll.register(fd, select.EPOLLIN)
        self._tick(connection, time.monotonic_ns())

    def forget(self, connection: NeighbourStream) -> None:
        """Let go of a connection whose socket is about to be closed."""
        fd = connection.sock.fileno()
        if self.by_fd.get(fd) is connection:
            del self.by_fd[fd]
            self._armed.discard(fd)
            self._epoll.unregister(fd)

    def on_ready(self, fd: int, mask: int) -> None:
        """Handle what epoll has said of a connection."""
        connection = self.by_fd[fd]
        try:
            if mask & select.EPOLLOUT:
                connection.on_writable()
            if mask & ~select.EPOLLOUT:
                connection.on_readable()
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            connection.crash(fault)

    def flush(self, fd: int) -> None:
        """Write what a connection has to say, if the descriptor is one's."""
        connection = self.by_fd.get(fd)
        if connection is None:
            return
        try:
            is_full = connection.flush()
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            connection.crash(fault)
            return
        if is_full != (fd in self._armed) and fd in self.by_fd:
            self._armed ^= {fd}
            self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if is_full else 0))

    def _tick(self, connection: NeighbourStream, now_ns: int) -> None:
        """Keep what the other cell asks for: it hears something of each connection now and then."""
        if self.by_fd.get(connection.sock.fileno()) is not connection:
            return
        following = connection.wire.tick(now_ns // MILLISECOND_NS)
        again = following * MILLISECOND_NS if following > 0 else now_ns + SECOND_NS
        again = max(again, now_ns + MILLISECOND_NS)
        self._timers.at(again, lambda now_ns: self._tick(connection, now_ns))
