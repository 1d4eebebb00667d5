"""Accepting of clients: listening sockets, and the limits on how many clients there may be."""

from __future__ import annotations

import errno
import logging
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.amqp.container import Container
from broker.amqp.loop.admission import Admission
from broker.amqp.loop.deferral import Deferral
from broker.amqp.loop.handover import HandedConnection
from broker.amqp.loop.handshake import HandshakeBudget, TlsHandshake
from broker.amqp.loop.sockets import ClientSocket, ClientSockets
from broker.amqp.loop.timeouts import ClientTimeouts
from broker.config.networks import network_of, written
from broker.errors import OperatorError
from broker.loggers import SOMEBODY, about
from broker.security.exchange import ListenerTrust

if TYPE_CHECKING:
    from broker.security.tls import ServerTls

log = logging.getLogger("sluice.amqp")

# Clients taken in at a time.
ACCEPTS = 8
# How long nobody is accepted where there are no descriptors, or no memory, left.
PAUSE_NS = 100_000_000


class ListeningSocket:
    """One listening address."""

    def __init__(
        self, sock: socket.socket, allow_plain: bool, door: ListenerTrust, tls: ServerTls | None
    ) -> None:
        self.sock = sock
        self.allow_plain = allow_plain
        self.door = door
        self.tls = tls


class ClientAcceptor:
    """Takes in clients, as many as there may be; ``accepted_total`` counts them."""

    def __init__(
        self,
        container: Container,
        admission: Admission,
        sockets: ClientSockets,
        deferral: Deferral,
        timeouts: ClientTimeouts,
        epoll: select.epoll,
    ) -> None:
        self.listeners: dict[int, ListeningSocket] = {}
        self.accepted_total = 0
        self._limits = container.settings.limits
        self._quotas = container.quotas
        self._timers = container.timers
        self._lane = container.lane
        self._admission = admission
        self._sockets = sockets
        self._deferral = deferral
        self._timeouts = timeouts
        self._epoll = epoll
        self._handshake_budget = HandshakeBudget()
        self._accepting = True

    def listen(
        self, host: str, port: int, allow_plain: bool, door: ListenerTrust, tls: ServerTls | None = None
    ) -> int:
        """Listen on an address; the port it got. OperatorError if it is taken or not ours."""
        return self.listen_at(self._bound(host, port), allow_plain, door, tls)

    def listen_at(
        self, sock: socket.socket, allow_plain: bool, door: ListenerTrust, tls: ServerTls | None = None
    ) -> int:
        """Accept at a socket that listens already, and doesn't block; its port."""
        self.listeners[sock.fileno()] = ListeningSocket(sock, allow_plain, door, tls)
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        got: int = sock.getsockname()[1]
        return got

    def _bound(self, host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(self._limits.listen_backlog)
        except OSError as fault:
            sock.close()
            raise OperatorError(f"cannot listen on {host}:{port}: {fault.strerror}") from fault
        return sock

    def stop_listening(self) -> None:
        """Accept nobody any more."""
        self._accepting = False
        for fd, listener in list(self.listeners.items()):
            self._epoll.unregister(fd)
            listener.sock.close()
            del self.listeners[fd]

    def on_ready(self, fd: int, now_ns: int) -> None:
        """Accept clients that wait at a listening socket, or leave them until there is time for it."""
        if self._deferral.may_now(now_ns):
            began_ns = time.monotonic_ns()
            self._accept(self.listeners[fd], now_ns)
            self._lane.charge(time.monotonic_ns() - began_ns)
        else:
            self._deferral.defer_listening(fd)

    def take_up(self, fd: int, now_ns: int) -> None:
        """Accept clients at a listening socket whose slice has come."""
        self._epoll.modify(fd, select.EPOLLIN)
        self._accept(self.listeners[fd], now_ns)

    def adopt(
        self,
        sock: socket.socket,
        address: str,
        allow_plain: bool,
        door: ListenerTrust,
        gone: Callable[[], None] | None,
        tls: ServerTls | None = None,
    ) -> bool:
        """Take a connected socket as if it had been accepted here; if there is no room it is closed: false.

        ``gone``, of what speaks WebSocket, is called once the connection is closed. ``tls``: it begins with
        a handshake.
        """
        if not self._accepting:
            sock.close()
            return False
        return self._welcome(sock, address, allow_plain, door, gone, tls)

    def _accept(self, listener: ListeningSocket, now_ns: int) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, (host, port, *_rest) = listener.sock.accept()
            except OSError as fault:
                if fault.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):
                    log.warning("accept failed: %s", fault.strerror, extra=about(SOMEBODY))
                    self._pause(listener, now_ns)
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            came = written(host, port), listener.allow_plain, listener.door
            self._welcome(sock, *came, tls=listener.tls)

    def _pause(self, listener: ListeningSocket, now_ns: int) -> None:
        """Stop accepting for a moment, out of descriptors or memory, instead of spinning on it."""
        fd = listener.sock.fileno()
        self._epoll.modify(fd, 0)

        def resume(_: int) -> None:
            if fd in self.listeners:
                self._epoll.modify(fd, select.EPOLLIN)

        self._timers.at(now_ns + PAUSE_NS, resume)

    def _welcome(
        self,
        sock: socket.socket,
        address: str,
        allow_plain: bool,
        door: ListenerTrust,
        gone: Callable[[], None] | None = None,
        tls: ServerTls | None = None,
    ) -> bool:
        """Take a client in, if there is room for it; otherwise its socket is closed: false."""
        open_now = len(self._sockets.by_fd)
        if open_now >= self._limits.max_connections:
            log.warning("refused %s: %d connections are open", address, open_now, extra=about(address))
            return self._turn_away(sock, "max_connections")
        if not self._quotas.admits(network_of(address)):
            log.warning("refused %s: too many connections from there", address, extra=about(address))
            return self._turn_away(sock, "max_connections_per_address")
        if len(self._sockets.handshaking) >= self._limits.max_handshakes:
            self._evict_oldest_handshake()
        sock.setblocking(False)
        handshake = self._admission.handshake(address, allow_plain, door, time.monotonic_ns)
        client = ClientSocket(sock, address, handshake, gone)
        if tls is not None:
            client.tls = TlsHandshake(sock, tls, self._handshake_budget)
        self.accepted_total += 1
        self._sockets.add(client)
        self._timeouts.await_open(client)
        return True

    def receive(self, handed: HandedConnection) -> ClientSocket | None:
        """Take a client in that authenticated elsewhere; None, its socket left open, without room for it."""
        network = network_of(handed.address)
        if not self._accepting or len(self._sockets.by_fd) >= self._limits.max_connections:
            return None
        if not handed.relays and not self._quotas.admits(network):
            return None
        handed.sock.setblocking(False)
        handshake = self._admission.handed(handed.identity, handed.door, handed.seconds)
        client = ClientSocket(handed.sock, handed.address, handshake)
        client.relays = handed.relays
        self.accepted_total += 1
        self._sockets.add(client)
        self._timeouts.await_open(client)
        return client

    def _turn_away(self, sock: socket.socket, limit: str) -> bool:
        self._quotas.refuse(limit)
        sock.close()
        return False

    def _evict_oldest_handshake(self) -> None:
        """Close, of too many that aren't open yet, the one that has had the most time for it."""
        oldest = next(iter(self._sockets.handshaking))
        text = "%s: not open yet, and others want its place"
        log.info(text, oldest.address, extra=about(oldest.address))
        self._quotas.refuse("max_handshakes")
        self._sockets.close(oldest)
