"""The way of a client from its first byte to its connection: TLS, then SASL, on plain socket reads.

Nothing of it reaches Proton.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from broker.amqp.container import Container
from broker.amqp.control.connection import ConnectionControl
from broker.amqp.control.sasl import Handshake
from broker.amqp.loop.admission import Admission, why_gone
from broker.amqp.loop.handover import HandedConnection, Recorder, without_empty_frames
from broker.amqp.loop.handshake import TlsHandshake, is_client_hello
from broker.amqp.loop.sockets import ClientSocket, ClientSockets
from broker.amqp.loop.timeouts import ClientTimeouts
from broker.errors import PeerError
from broker.loggers import about
from broker.security.exchange import Accepted, Refused
from broker.security.identity import Identity

log = logging.getLogger("sluice.amqp")

READ_BYTES = 4096


class ClientHandshakes:
    """Leads clients through TLS and SASL to their connections.

    ``on_ready`` handles input of a client whose connection has begun: TLS may hold some of which epoll
    doesn't know.
    """

    def __init__(
        self,
        container: Container,
        admission: Admission,
        sockets: ClientSockets,
        timeouts: ClientTimeouts,
        on_ready: Callable[[ClientSocket, int, int], None],
    ) -> None:
        self._container = container
        self._engine = container.engine
        self._admission = admission
        self._sockets = sockets
        self._timeouts = timeouts
        self._on_ready = on_ready

    def on_input(self, client: ClientSocket) -> None:
        """Read from a client before authentication, or after our last word."""
        if client.tls is not None and not client.ending:
            self._on_tls(client, client.tls)
            return
        try:
            data = client.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._sockets.close(client)
            return
        if client.ending or client.handshake is None:
            return
        self._go_on(client, client.handshake, client.handshake.feed(data))

    def _on_tls(self, client: ClientSocket, tls: TlsHandshake) -> None:
        """Read through TLS, to the end of what has been read: epoll doesn't know of what TLS holds."""
        handshake = client.handshake
        try:
            if not tls.shake(self._engine.turn.now_ns):
                return
            if handshake is not None and tls.user:
                handshake.door = replace(handshake.door, external_user=tls.user, external_until_s=tls.until_s)
                tls.user = ""
            while handshake is not None and client.handshake is handshake and handshake.work is None:
                data = tls.read()
                if data is None:
                    return
                if not data:
                    self._sockets.close(client)
                    return
                self._go_on(client, handshake, handshake.feed(data))
        except PeerError as fault:
            self._refuse(client, fault.description)

    def _go_on(self, client: ClientSocket, handshake: Handshake, answer: bytes) -> None:
        """Send a handshake's answer, and do what the handshake has come to."""
        if handshake.is_settled:
            self._admission.settled(handshake, client.address, time.monotonic_ns())
        if answer and not _send(client, answer):
            self._sockets.close(client)
        elif handshake.failed:
            why = handshake.failed
            if client.tls is None and is_client_hello(handshake.rest):
                why += ": the client speaks TLS, and this port is for amqp://"
            self._refuse(client, why)
        elif handshake.done:
            self._arrive(client, handshake)
        elif handshake.work is not None:
            self._wait_for_work(client, handshake)

    def _refuse(self, client: ClientSocket, why: str) -> None:
        log.info("%s: refused: %s", client.address, why, extra=about(client.address, reason=why))
        self._sockets.linger(client)

    def _wait_for_work(self, client: ClientSocket, handshake: Handshake) -> None:
        """Read nothing from a client until its handshake's work is done; its deadline goes on."""
        self._sockets.watch_input(client, wanted=False)

        def done(result: Accepted | Refused) -> None:
            if client.handshake is handshake and not client.closed:
                self._sockets.watch_input(client, wanted=True)
                self._go_on(client, handshake, handshake.resume(result))
                if client.tls is not None and not client.ending:
                    self._on_tls(client, client.tls)

        post = self._container.inbox.post
        self._admission.work(handshake, client.address, time.monotonic_ns, post, done)

    def _arrive(self, client: ClientSocket, handshake: Handshake) -> None:
        """Begin the connection of a client that has authenticated, unless it may not stay by now."""
        peer = self._begin(client, handshake)
        if peer is None:
            return
        if self._container.cells is not None and client.tls is None and client.gone is None:
            peer.wire.tap = Recorder(handshake.rest)
        try:
            peer.wire.feed(handshake.rest)
            if peer.wire.incoming.more:
                self._sockets.half_read[client] = None
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            self._sockets.crash(client, fault)
        peer.wire.mark()
        if client.tls is not None and not client.closed:
            self._on_ready(client, select.EPOLLIN, self._engine.turn.now_ns)

    def take_over(self, client: ClientSocket, handed: HandedConnection) -> bool:
        """Go on with a connection that began in another cell.

        False where it can't be: then nothing was written to it, and its socket stays open.
        """
        handshake = client.handshake
        peer = None if handshake is None else self._begin(client, handshake, refuses=False)
        try:
            said = peer is not None and self._say_again(peer, handed)
        except Exception:
            log.exception("%s: its connection can't be taken over", handed.address)
            said = False
        if peer is None or not said or client.closed:
            if peer is not None:
                peer.lose("", "it stays where it came from")
            # The socket stays open: what is closed with the client is another descriptor of it.
            client.sock = handed.sock.dup()
            self._sockets.close(client)
            return False
        if peer.wire.incoming.more:
            self._sockets.half_read[client] = None
        peer.wire.mark()
        return True

    def _say_again(self, peer: ConnectionControl, handed: HandedConnection) -> bool:
        """Have a connection read what was said on it elsewhere; whether it answers what was answered."""
        for is_ours, data in without_empty_frames(handed.steps):
            if not is_ours:
                peer.wire.feed(data)
            elif not peer.wire.skip_output(data):
                log.warning("%s: what another cell has answered isn't what this one would", handed.address)
                return False
        return True

    def _begin(
        self, client: ClientSocket, handshake: Handshake, *, refuses: bool = True
    ) -> ConnectionControl | None:
        """Begin the connection of a client that has authenticated; None where it may not stay."""
        if handshake.identity is None:
            return None
        identity = self._admission.arrived(handshake)
        if identity is None:
            if refuses:
                self._refuse(client, why_gone(handshake.identity))
            return None
        peer = self._connection(client, handshake, identity)
        client.peer = peer
        client.handshake = None
        self._container.peers.add(peer)
        return peer

    def _connection(
        self, client: ClientSocket, handshake: Handshake, identity: Identity
    ) -> ConnectionControl:
        if handshake.seconds:
            client.until_ns = time.monotonic_ns() + int(handshake.seconds * 1e9)
        tls = None if client.tls is None else client.tls.stream
        told = (
            partial(self._timeouts.opened, client),
            partial(self._timeouts.await_closed, client),
            partial(self._sockets.send_back, client),
        )
        return ConnectionControl(
            self._container, client.fd, client.address, identity, handshake.door, *told, tls, client.relays
        )


def _send(client: ClientSocket, data: bytes) -> bool:
    """Send a handshake's few bytes, which fit any socket's buffer; a client that takes less is let go."""
    if client.tls is not None:
        return client.tls.stream.say(data)
    try:
        return client.sock.send(data) == len(data)
    except OSError:
        return False
