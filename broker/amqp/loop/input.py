"""Input of clients: read from their sockets, and weighed against what it brings."""

from __future__ import annotations

import select
import time

from broker.amqp.container import Container
from broker.amqp.control.connection import ConnectionControl
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.loop.admission import Admission
from broker.amqp.loop.client_handshakes import ClientHandshakes
from broker.amqp.loop.deferral import Deferral
from broker.amqp.loop.handover import HandedConnection
from broker.amqp.loop.sockets import ClientSocket, ClientSockets
from broker.amqp.loop.timeouts import ClientTimeouts

# The cost of work for a client that reads no answers, about in microseconds, beyond which it isn't read.
MOST_OWED = 50_000


class ClientInput:
    """Handles what has arrived at clients' sockets."""

    def __init__(
        self,
        container: Container,
        admission: Admission,
        sockets: ClientSockets,
        deferral: Deferral,
        timeouts: ClientTimeouts,
    ) -> None:
        self._engine = container.engine
        self._lane = container.lane
        self._sockets = sockets
        self._deferral = deferral
        self._timeouts = timeouts
        self._handshakes = ClientHandshakes(container, admission, sockets, timeouts, self.on_ready)

    def on_ready(self, client: ClientSocket, mask: int, now_ns: int) -> None:
        """Handle what epoll has said of a client's socket, unless that is left for later."""
        aside = client.aside
        if aside and not client.ending and self._deferral.defers(client, mask, now_ns):
            return
        began_ns = time.monotonic_ns() if aside else 0
        peer = client.peer
        try:
            if peer is not None and mask & select.EPOLLOUT:
                client.taken_ns = now_ns
                self._unblocked(peer)
            if peer is None or client.ending:
                self._handshakes.on_input(client)
            elif mask & ~select.EPOLLOUT:
                self._read(client, peer, now_ns)
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            self._sockets.crash(client, fault)
        if aside:
            self._lane.charge(time.monotonic_ns() - began_ns)
            client.aside = client.deferred or not client.has_moved()

    def take_over(self, client: ClientSocket, handed: HandedConnection) -> bool:
        """Go on with a connection that began in another cell; false where its answers would be others."""
        return self._handshakes.take_over(client, handed)

    def go_on(self, now_ns: int) -> None:
        """Handle what was read in an earlier turn, and was more than one should do."""
        clients = list(self._sockets.half_read)
        self._sockets.half_read.clear()
        for client in clients:
            # One that is left unread for now is noted again when it isn't any more.
            if not (client.closed or client.ending or client.deferred or client.paused):
                self.on_ready(client, select.EPOLLIN, now_ns)

    def serve(self, client: ClientSocket, now_ns: int) -> None:
        """Read from a client that is deferred, now that its slice has come."""
        peer = client.peer
        try:
            if peer is not None and not client.ending and not client.paused:
                self._read(client, peer, now_ns)
                return
            self._deferral.take_up(client)
            if peer is None:
                self._handshakes.on_input(client)
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            self._sockets.crash(client, fault)

    def _read(self, client: ClientSocket, peer: ConnectionControl, now_ns: int) -> None:
        wire = peer.wire
        if not wire.pump_in():
            client.ending = True
            peer.input_ended()
            self._timeouts.await_drained(client, now_ns)
        elif wire.unusual or client.deferred:
            self._weigh(client, wire, now_ns)
        else:
            self._lane.moved_ns = now_ns

    def _weigh(self, client: ClientSocket, wire: Wire, now_ns: int) -> None:
        """Charge a client what its frames cost; it is served with everybody else then, or deferred."""
        incoming = wire.incoming
        moved = wire.received + wire.sent
        if moved > client.cost.moved:
            self._lane.moved_ns = now_ns
        client.cost.charge(incoming.cost, moved, now_ns)
        if wire.blocked:
            wire.output_cost += incoming.cost
            if wire.output_cost > MOST_OWED and not wire.input_stopped:
                wire.input_stopped = True
                wire.mark()
        if client.cost.costly:
            self._deferral.defer(client)
            return
        if client.deferred:
            self._deferral.take_up(client)
        if incoming.more or wire.held:
            self._sockets.half_read[client] = None

    def _unblocked(self, peer: ConnectionControl) -> None:
        """Let what waits for a client be sent, now that its socket takes bytes again."""
        peer.wire.blocked = False
        peer.wire.mark()
        for link in peer.wire.links:
            if link.node is not None:
                self._engine.turn.mark_dirty(link.node)
