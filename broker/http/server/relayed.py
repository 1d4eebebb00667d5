"""Sockets of HTTP clients that another member relays, on their way from its thread to the HTTP server's."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable


class RelayedSockets:
    """A queue of connected sockets; ``begin`` says how the loop that takes them is woken."""

    def __init__(self) -> None:
        self._queue: deque[socket.socket] = deque()
        self._wake: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def hand(self, sock: socket.socket) -> bool:
        """Queue a socket, on any thread; whether there is a loop that takes it already."""
        with self._lock:
            self._queue.append(sock)
            wake = self._wake
        if wake is None:
            return False
        wake()
        return True

    def begin(self, wake: Callable[[], object]) -> None:
        """Have ``wake`` called for each socket from now on, and once for those that are here."""
        with self._lock:
            self._wake = wake
        wake()

    def take(self) -> list[socket.socket]:
        """Take all that wait."""
        with self._lock:
            found = list(self._queue)
            self._queue.clear()
        return found

    def close(self) -> None:
        """Close those that wait still."""
        for sock in self.take():
            sock.close()
