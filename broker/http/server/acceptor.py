"""Clients of the HTTP port are let in here, a few at a time; those that speak TLS within a short time."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from broker.http.server import limits
from broker.http.server.selector import ThrottledSelector
from broker.http.server.types import Secured
from broker.loggers import SOMEBODY, about

log = logging.getLogger("sluice.http")

# Let in before others of the loop have their turn.
ACCEPTS = 32
# What one that has said goodbye may take to hear ours.
GOODBYE_S = 1.0
# Out of descriptors: how long until the next is accepted.
PAUSE_S = 0.1


class Acceptor:
    """Accepts on listening sockets; ``client`` makes what a client talks to, with ``secured`` once its TLS is
    through.

    ``has_room`` says whether one more may come from an address, beside those on their way. Until it has
    become a client, a socket waits at the ``turnstile`` as those do.
    """

    def __init__(
        self,
        secured: Secured | None,
        client: Callable[[], asyncio.Protocol],
        has_room: Callable[[str, int], bool],
        turnstile: ThrottledSelector,
    ) -> None:
        self._secured = secured
        self._client = client
        self._has_room = has_room
        self._turnstile = turnstile
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._coming: set[asyncio.Task[None]] = set()

    def accept(self, sock: socket.socket) -> None:
        """Begin with one more socket, which is not blocking."""
        self._turnstile.bind(sock.fileno())
        self._listening.append(sock)
        self._loop.add_reader(sock, self._accept, sock)

    def stop(self) -> None:
        """Accept nobody any more; handshakes under way are cut off."""
        for sock in self._listening:
            self._loop.remove_reader(sock)
            self._turnstile.release(sock.fileno())
        self._listening.clear()
        for task in self._coming:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, peer = listening.accept()
            except OSError as fault:
                if fault.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):
                    log.warning("accept failed: %s", fault.strerror, extra=about(SOMEBODY))
                    self._loop.remove_reader(listening)
                    self._loop.call_later(PAUSE_S, self._resume, listening)
                return
            self.welcome(sock, peer)

    def welcome(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        """Begin with a connected socket, unless it is one too many."""
        sock.setblocking(False)
        # Head and body of an answer are two writes: the second one isn't to wait for the first one's ack.
        # The loop sees to that only where a socket was made with TCP's number; none that is accepted was.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._has_room(peer[0], len(self._coming)):
            sock.close()
            return
        task = self._loop.create_task(self._greet(sock, f"{peer[0]}:{peer[1]}"))
        self._coming.add(task)
        task.add_done_callback(partial(self._came, sock))

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)

    def _came(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._coming.discard(task)
        if task.cancelled():
            sock.close()

    async def _greet(self, sock: socket.socket, peer: str) -> None:
        secured = self._secured
        if secured is None:
            await self._loop.connect_accepted_socket(self._client, sock)
            return
        fd = sock.fileno()
        self._turnstile.bind(fd)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                self._client,
                sock,
                ssl=secured.context(),
                ssl_handshake_timeout=limits.PAUSE_S,
                ssl_shutdown_timeout=GOODBYE_S,
            )
        except OSError as fault:
            self._turnstile.release(fd)
            reason = _reason(fault)
            secured.failed(reason)
            text = "%s: refused: TLS handshake failed: %s"
            log.info(text, peer, reason, extra=about(peer, reason=reason))
            return
        secured.completed(transport.get_extra_info("ssl_object").version())


def _reason(fault: OSError) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return fault.verify_message
    if isinstance(fault, ssl.SSLError):
        if fault.reason == "HTTP_REQUEST":
            return "a request without TLS, and this port is for https://"
        return (fault.reason or "protocol error").lower().replace("_", " ")
    if isinstance(fault, ConnectionAbortedError):
        return "too slow"
    return "ended"
