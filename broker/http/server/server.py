"""The HTTP port: what machines that watch ask for, and AMQP over WebSocket, in one thread of its own.

This file opens the port and begins and ends the thread. The thread imports what it serves with (``loop``,
``app``, ``websocket``) when the first client connects: a broker that nobody asks over HTTP never loads it.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from broker.errors import OperatorError
from broker.http.server.calls import Ask, asking, asking_in_parts
from broker.http.server.cpu_share import CpuShare
from broker.http.server.relayed import RelayedSockets
from broker.http.server.types import Operate, Secured
from broker.http.server.websocket_handshake import WebSocketHandshake
from broker.manage.survey import SurveyResult

if TYPE_CHECKING:
    from broker.http.cells.face import OtherCells

log = logging.getLogger("sluice.http")

# How long a stop waits for the thread.
STOP_S = 5.0
BACKLOG = 1024
# What is said to another cell before its answer (RFC 2518 §10.1).
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
# Modules loaded to serve, from the bottom up: a stop waits for one of them, a tenth of a second, at most.
# Those of the API are loaded by its first request (``app``).
PARTS = ("starlette.applications", "uvicorn", "broker.http.app", "broker.http.server.loop")


class HttpServer:
    """Serves in a thread of its own from ``start`` to ``stop``; port 0 takes a free one.

    Without an ``entrance`` there is no AMQP over WebSocket, without ``operate`` no API. ``survey`` may be
    called on any thread.
    """

    def __init__(
        self,
        host: str,
        port: int,
        ask: Ask,
        survey: Callable[[], SurveyResult],
        readiness: Callable[[], str] = lambda: "",
        entrance: WebSocketHandshake | None = None,
        operate: Operate | None = None,
        secured: Secured | None = None,
        share: CpuShare | None = None,
        sock: socket.socket | None = None,
        others: OtherCells | None = None,
    ) -> None:
        # The other cells of this machine, for which it speaks too.
        self._others = others
        # Sockets of other cells, each with a request; and of clients that another member relays.
        self._arriving = RelayedSockets()
        self._share = share or CpuShare()
        # One that listens already, in place of the address.
        self._sock = sock
        self._address = (host, port)
        self._ask = asking(ask, self._share)
        self._survey = survey
        self._readiness = readiness
        self._entrance = entrance
        self._operate = operate and replace(
            operate, ask_in_parts=asking_in_parts(operate.ask_in_parts, self._share)
        )
        self._secured = secured
        self._port = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._wake: Callable[[], object] | None = None
        self._stopped = False
        # Whether the loop has begun: what wakes it then ends it.
        self._is_awake = False
        self._relayed = RelayedSockets()

    def start(self) -> None:
        """Open the port; OperatorError if it can't be had."""
        sock = _listening(*self._address) if self._sock is None else self._sock
        self._port = sock.getsockname()[1]
        self._stopped = False
        stopping, stop = socket.socketpair()
        self._wake = partial(stop.send, b"!")
        parts = sock, stopping, stop
        self._thread = threading.Thread(target=self._serve, args=parts, name="http", daemon=True)
        self._thread.start()

    def adopt(self, sock: socket.socket) -> None:
        """Serve a connected socket, whose ``getpeername`` is the client's address; on any thread."""
        self._take(sock, self._relayed)

    def adopt_cell(self, sock: socket.socket) -> None:
        """Answer the request that another cell makes on a connected socket; on any thread."""
        if not self._is_awake:
            # To load what answers takes seconds on a busy machine: the other cell is to know that we live.
            with suppress(OSError):
                sock.send(PROCESSING)
        self._take(sock, self._arriving)

    def _take(self, sock: socket.socket, queue: RelayedSockets) -> None:
        if self._thread is None:
            sock.close()
            return
        if not queue.hand(sock):
            with self._lock:
                wake = None if self._is_awake else self._wake
            if wake is not None:
                with suppress(OSError):
                    wake()

    def wind_down(self) -> None:
        """From now on clients of WebSocket hear that the broker is going away; any thread may say so."""
        if self._entrance is not None:
            self._entrance.leaving = True

    def stop(self) -> None:
        """Close the port and cut off who is still connected; safe to call twice."""
        if self._thread is None:
            return
        self.wind_down()
        with self._lock:
            self._stopped = True
            wake = self._wake
        if wake is not None:
            with suppress(RuntimeError, OSError):  # the thread has ended already
                wake()
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            log.error("the HTTP server's thread does not end; the broker leaves without it")
        self._thread, self._port = None, 0

    @property
    def port(self) -> int:
        """The port it listens on; 0 if it doesn't."""
        return self._port

    def _serve(self, sock: socket.socket, stopping: socket.socket, stop: socket.socket) -> None:
        try:
            with stopping, stop:
                _await_input(sock, stopping)
            for part in PARTS:
                if self._stopped:
                    return
                import_module(part)
            from broker.http import app
            from broker.http.server import loop, stats

            counts = stats.HttpCounts()
            asked = self._ask, self._survey, self._readiness, self._operate
            face = None
            if self._others is not None:
                from broker.http.cells.face import CellsFace

                face = CellsFace(self._others, self._arriving)
            served = app.application(*asked, counts, self._share, face)
            queues = self._relayed, face
            loop.run(served, self._entrance, sock, self._wakes, counts, self._secured, self._share, *queues)
        except Exception:
            log.exception("the HTTP server has failed; the broker goes on without it")
        finally:
            sock.close()
            self._relayed.close()
            self._arriving.close()

    def _wakes(self, wake: Callable[[], object]) -> bool:
        """Take what ends the server's loop from another thread; true if it is to end at once."""
        with self._lock:
            self._wake = wake
            self._is_awake = True
            return self._stopped


def _await_input(*socks: socket.socket) -> None:
    """Wait until one of the sockets has a byte or a client."""
    poll = select.poll()
    for sock in socks:
        poll.register(sock, select.POLLIN)
    poll.poll()


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket: who connects before the loop turns waits in the system's queue."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as fault:
        sock.close()
        raise OperatorError(f"can't listen for HTTP on {host}:{port}: {fault.strerror or fault}") from fault
    return sock
