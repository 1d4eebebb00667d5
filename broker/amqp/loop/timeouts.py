"""The times that clients may take: to open, to read, to say anything, to come back with a new token."""

from __future__ import annotations

import logging
import time

from broker.amqp.container import Container
from broker.amqp.loop.sockets import ClientSocket, ClientSockets
from broker.loggers import about

log = logging.getLogger("sluice.amqp")

# How long one whose input has ended, or that the broker has closed, may take to read what is left for it.
DRAIN_NS = 10_000_000_000
MILLISECOND_NS = 1_000_000


class ClientTimeouts:
    """Ends the connections of clients that take longer than they may."""

    def __init__(self, container: Container, sockets: ClientSockets) -> None:
        self._engine = container.engine
        self._timers = container.timers
        self._limits = container.settings.limits
        self._quotas = container.quotas
        self._sockets = sockets

    def await_open(self, client: ClientSocket) -> None:
        """Give a new client ``handshake_timeout`` to open its connection."""

        def expire(_: int) -> None:
            if client.closed or (client.peer is not None and client.peer.is_open):
                return
            text = "%s: no AMQP connection within the time for it"
            if client.tls is not None and client.tls.is_late():
                text = "%s: no TLS handshake within the time for it"
            log.info(text, client.address, extra=about(client.address))
            self._quotas.refuse("handshake_timeout")
            self._sockets.close(client)

        deadline_ns = time.monotonic_ns() + self._limits.handshake_timeout_ms * MILLISECOND_NS
        self._sockets.at(deadline_ns, client, "open", expire)

    def opened(self, client: ClientSocket) -> None:
        """Begin with idle timeouts, now that a client has opened its connection."""
        self._sockets.handshaking.pop(client, None)
        if "open" in client.timers:
            self._timers.drop(client.timers.pop("open"))
        self._sockets.at(self._engine.turn.now_ns, client, "tick", lambda now_ns: self._tick(client, now_ns))

    def _tick(self, client: ClientSocket, now_ns: int) -> None:
        """Keep idle timeouts both ways, known once the client has opened; Proton says when to ask again."""
        if client.closed or client.ending or client.peer is None:
            return
        if 0 < client.until_ns <= now_ns:
            proof = "certificate" if client.peer.identity.mechanism == "EXTERNAL" else "token"
            client.peer.close("amqp:unauthorized-access", f"the {proof} has expired")
            return
        following = client.peer.wire.tick(now_ns // MILLISECOND_NS)
        again = following * MILLISECOND_NS if following > 0 else now_ns + 1000 * MILLISECOND_NS
        again = min(again, client.until_ns or again)
        again = max(again, now_ns + MILLISECOND_NS)
        self._sockets.at(again, client, "tick", lambda now_ns: self._tick(client, now_ns))

    def await_taken(self, client: ClientSocket) -> None:
        """Cut a client off once it has taken nothing of its output for ``send_timeout``."""
        most_ns = self._limits.send_timeout_ms * MILLISECOND_NS
        if not most_ns or client.minded:
            return
        client.minded = True

        def check(now_ns: int) -> None:
            client.minded = False
            if client.closed or not client.armed or client.peer is None:
                return
            if now_ns - client.taken_ns < most_ns:
                self.await_taken(client)
                return
            self._quotas.refuse("send_timeout")
            client.peer.lose("amqp:resource-limit-exceeded", "it takes nothing of what is written to it")
            self._sockets.close(client)

        self._sockets.at(client.taken_ns + most_ns, client, "send", check)

    def await_closed(self, client: ClientSocket) -> None:
        """Give a client that the broker has closed a while to read that, however slowly it reads."""
        self.await_drained(client, time.monotonic_ns())

    def await_drained(self, client: ClientSocket, now_ns: int) -> None:
        """Give a client whose connection is over a while to read what is left for it."""
        self._sockets.at(now_ns + DRAIN_NS, client, "drain", lambda _: self._sockets.close(client))
