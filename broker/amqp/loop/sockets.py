"""The sockets of clients, from accept to close."""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Callable

from broker.amqp.container import Container
from broker.amqp.control.connection import ConnectionControl
from broker.amqp.control.sasl import Handshake
from broker.amqp.loop.control_quota import CostMeter
from broker.amqp.loop.handshake import TlsHandshake
from broker.amqp.loop.timers import Timer
from broker.config.networks import network_of
from broker.loggers import about

log = logging.getLogger("sluice.amqp")

# How long a peer we have closed may take to hear it before its socket goes.
LINGER_NS = 2_000_000_000


class ClientSocket:
    """A socket from accept to close; ``peer`` is set once it has authenticated.

    ``gone`` is called once it is closed.
    """

    __slots__ = (
        *("address", "armed", "aside", "closed", "cost", "deferred", "ending", "fd", "gone", "handshake"),
        *("minded", "paused", "peer", "relays", "sock", "taken_ns", "timers", "tls", "until_ns"),
    )

    def __init__(
        self, sock: socket.socket, address: str, handshake: Handshake, gone: Callable[[], None] | None = None
    ) -> None:
        self.sock = sock
        self.gone = gone
        self.fd = sock.fileno()
        self.address = address
        self.handshake: Handshake | None = handshake
        self.peer: ConnectionControl | None = None
        # Epoll is asked when it can be written.
        self.armed = False
        # It is not read until some of what is written to it is taken.
        self.paused = False
        # Our last word is said.
        self.ending = False
        self.closed = False
        self.cost = CostMeter(time.monotonic_ns())
        # When it last took something of what is written to it, while that waits; whether a timer looks at it.
        self.taken_ns = 0
        self.minded = False
        # Left unread until the control quota has time for it.
        self.deferred = False
        # The quota pays for its work: it is deferred, or has moved no message yet.
        self.aside = True
        # When what it came in with holds no longer; 0 if it does for good.
        self.until_ns = 0
        # Its timers, by their reason; none once it is closed.
        self.timers: dict[str, Timer] = {}
        # Its TLS, if it came by a listener that has it.
        self.tls: TlsHandshake | None = None
        # It is another cell's, by which that passes on links of a client, who is counted there.
        self.relays = False

    def has_moved(self) -> bool:
        """Whether a message of its has come or gone."""
        return self.peer is not None and (self.peer.wire.received or self.peer.wire.sent) > 0


class ClientSockets:
    """All sockets of clients, each until it is closed.

    ``handshaking`` are those that aren't open yet, in the order they came, ``half_read`` those of which
    more has been read than was handled.
    """

    def __init__(self, container: Container, epoll: select.epoll) -> None:
        self.by_fd: dict[int, ClientSocket] = {}
        self.handshaking: dict[ClientSocket, None] = {}
        self.half_read: dict[ClientSocket, None] = {}
        self._container = container
        self._timers = container.timers
        self._lane = container.lane
        self._epoll = epoll

    def add(self, client: ClientSocket) -> None:
        """Take a socket that has just come."""
        self.by_fd[client.fd] = client
        self.handshaking[client] = None
        if not client.relays:
            self._container.quotas.came(network_of(client.address))
        self._epoll.register(client.fd, select.EPOLLIN)

    def at(self, when_ns: int, client: ClientSocket, why: str, function: Callable[[int], None]) -> None:
        """Call a function at a time, in place of any set for the same reason, unless it is closed by then."""
        if why in client.timers:
            self._timers.drop(client.timers[why])
        client.timers[why] = self._timers.at(when_ns, function)

    # --- what epoll is asked for

    def watch(self, client: ClientSocket) -> None:
        """Have epoll say what the socket's state asks for."""
        reads = 0 if client.paused or client.deferred else select.EPOLLIN
        self._epoll.modify(client.fd, reads | (select.EPOLLOUT if client.armed else 0))

    def watch_input(self, client: ClientSocket, *, wanted: bool) -> None:
        """Have epoll say when the socket can be read, and nothing else, or nothing at all."""
        self._epoll.modify(client.fd, select.EPOLLIN if wanted else 0)

    # --- their end

    def crash(self, client: ClientSocket, fault: BaseException) -> None:
        """End a connection whose handling failed by a bug of ours."""
        peer = client.peer
        if peer is None:
            return
        try:
            peer.wire.skip_event()
            peer.crash(fault)
            peer.wire.pump_out()
        except Exception:
            log.exception("%s: could not be closed in order", client.address, extra=about(client.address))
        self.linger(client)

    def linger(self, client: ClientSocket) -> None:
        """Wait a moment for the client to hear our last word, then close the socket.

        Closing at once with unread input would make the kernel send a reset, which can overtake
        the close frame that says why.
        """
        if client.closed or (client.ending and client.peer is None and client.handshake is None):
            return
        self._part(client)
        client.ending = True
        if client.tls is not None:
            client.tls.stream.bid_farewell()
        try:
            client.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close(client)
            return
        self.watch_input(client, wanted=True)
        self._lane.drop(client.fd)
        self.at(time.monotonic_ns() + LINGER_NS, client, "end", lambda _: self.close(client))

    def close(self, client: ClientSocket) -> None:
        """Close a socket, and let everything go that it has."""
        if client.closed:
            return
        client.closed = True
        for timer in client.timers.values():
            self._timers.drop(timer)
        client.timers.clear()
        self._part(client)
        self._lane.drop(client.fd)
        self._epoll.unregister(client.fd)
        client.sock.close()
        self.by_fd.pop(client.fd, None)
        self.handshaking.pop(client, None)
        if not client.relays:
            self._container.quotas.went(network_of(client.address))
        if client.gone is not None:
            client.gone()

    def _part(self, client: ClientSocket) -> None:
        """End the connection on the socket, or its handshake."""
        if client.handshake is not None:
            client.handshake.work = None
        peer, client.peer, client.handshake = client.peer, None, None
        if peer is not None:
            began_ns = time.monotonic_ns()
            self._container.peers.discard(peer)
            if peer.wire.tap is not None:
                peer.wire.tap.finish("the connection is closed")
            peer.say_closed()
            peer.free()
            if not client.aside:
                self._lane.charge(time.monotonic_ns() - began_ns)

    def close_peers(self, condition: str, text: str) -> None:
        """Say goodbye to everybody (shutdown)."""
        for client in list(self.by_fd.values()):
            if client.peer is None:
                self.close(client)
            else:
                self.send_back(client, condition, text)

    def send_back(self, client: ClientSocket, condition: str, text: str) -> None:
        """End a connection, outside of its own events, so that its client connects again.

        A client that doesn't say what it is may be Proton's for Python. After a `close` that one reads no
        more, so that it isn't aware of the connection's end and comes back at its idle timeout only. It is
        left without one (against §2.4.3), as by a broker that was killed, and comes back at once. Where the
        socket is full it is told all the same.
        """
        peer = client.peer
        if peer is None:
            return
        if _hears_no_close(client, peer) and _has_sent_all(peer):
            peer.lose(condition, text)
            self.linger(client)
        else:
            peer.close(condition, text)


def _hears_no_close(client: ClientSocket, peer: ConnectionControl) -> bool:
    """Whether it may be Proton for Python, which doesn't speak over WebSockets and is no cell."""
    return peer.is_open and client.gone is None and not client.relays and not peer.names_its_product


def _has_sent_all(peer: ConnectionControl) -> bool:
    peer.wire.pump_out()
    return not peer.wire.blocked
