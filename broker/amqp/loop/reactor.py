"""The broker's loop: epoll, connections, timers and the functions that other threads post.

A turn reads what has arrived, lets the engine end its turn and writes what came of it. One bad
connection never harms another: whatever goes wrong while one is handled closes that one.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.amqp.container import Container
from broker.amqp.loop.accept import ClientAcceptor
from broker.amqp.loop.admission import Admission
from broker.amqp.loop.control_work import ControlWork
from broker.amqp.loop.deferral import Deferral
from broker.amqp.loop.handover import ConnectionHandovers, HandedConnection, HandOver
from broker.amqp.loop.input import ClientInput
from broker.amqp.loop.neighbours import Dial, NeighbourLoop
from broker.amqp.loop.output import TurnOutput
from broker.amqp.loop.sockets import ClientSockets
from broker.amqp.loop.timeouts import ClientTimeouts
from broker.amqp.loop.timers import NEVER_NS
from broker.security.authentication import Authentication
from broker.security.exchange import ListenerTrust

if TYPE_CHECKING:
    from broker.security.tls import ServerTls

log = logging.getLogger("sluice.amqp")


class Reactor:
    """Runs one broker's connections on the calling thread; ``clients`` are their sockets, by descriptor.

    ``post`` is the only method another thread may call.
    """

    def __init__(self, container: Container, admission: Admission | None = None) -> None:
        admission = admission or Admission(Authentication())
        self.container = container
        self.engine = container.engine
        self.timers = container.timers
        self.epoll = select.epoll()
        self.longest_turn_ns = 0
        self._inbox = container.inbox
        self.epoll.register(self._inbox.bell, select.EPOLLIN)
        storing = self.engine.durability.commit
        self._store_bell = -1 if storing is None else storing.store.bell
        if self._store_bell >= 0:
            self.epoll.register(self._store_bell, select.EPOLLIN)
        # The turn looks at these each time: nothing is called for it.
        self._turns, self._to_flush = container.turns, container.to_flush
        self._deferred, self._requests = container.lane.waiting, container.requests.waiting
        self._parting = container.parting
        self._running = True
        sockets = self._sockets = ClientSockets(container, self.epoll)
        self.clients = sockets.by_fd
        timeouts = ClientTimeouts(container, sockets)
        deferral = Deferral(container.lane, sockets, self.epoll)
        self._acceptor = ClientAcceptor(container, admission, sockets, deferral, timeouts, self.epoll)
        self._input = ClientInput(container, admission, sockets, deferral, timeouts)
        # None where there is one cell.
        self._handovers: ConnectionHandovers | None = None
        self._neighbours: NeighbourLoop | None = None
        if container.cells is not None:
            container.handovers = self._handovers = ConnectionHandovers(container, sockets, self._take_back)
            container.neighbours = self._neighbours = NeighbourLoop(self.epoll, container.timers)
        self._output = TurnOutput(container, sockets, timeouts)
        self._control = ControlWork(container, sockets, self._acceptor, self._input, self._output)

    # --- for other threads

    def post(self, function: Callable[[], None]) -> None:
        """Run a function on the reactor's thread, soon; its exceptions are logged. After the end it isn't."""
        self._inbox.post(function)

    # --- setting up and running

    def listen(
        self, host: str, port: int, allow_plain: bool, door: ListenerTrust, tls: ServerTls | None = None
    ) -> int:
        """Listen on an address; the port it got. OperatorError if it is taken or not ours."""
        return self._acceptor.listen(host, port, allow_plain, door, tls)

    def listen_at(
        self, sock: socket.socket, allow_plain: bool, door: ListenerTrust, tls: ServerTls | None = None
    ) -> int:
        """Accept at a socket that listens already, and doesn't block; its port."""
        return self._acceptor.listen_at(sock, allow_plain, door, tls)

    def stop_listening(self) -> None:
        """Accept nobody any more."""
        self._acceptor.stop_listening()

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
        return self._acceptor.adopt(sock, address, allow_plain, door, gone, tls)

    def take_over(self, handed: HandedConnection) -> bool:
        """Go on with a connection that began in another cell; on the loop's thread.

        False where it can't be: then nothing was written to it, and its socket is the caller's.
        """
        client = self._acceptor.receive(handed)
        return client is not None and self._input.take_over(client, handed)

    def reach_cells_by(self, hand_over: HandOver, dial: Dial) -> None:
        """Hand connections over to other cells by the one, and connect to them by the other."""
        if self._handovers is not None and self._neighbours is not None:
            self._handovers.send = hand_over
            self._neighbours.dialled_by = dial

    def _take_back(self, handed: HandedConnection) -> bool:
        """Go on here with a connection that no other cell has taken, or let it go."""
        if not self.take_over(handed):
            handed.sock.close()
            return False
        return True

    @property
    def accepted_total(self) -> int:
        """The number of clients that were ever taken in."""
        return self._acceptor.accepted_total

    def at(self, when_ns: int, function: Callable[[int], None]) -> None:
        """Call ``function(now_ns)`` at a monotonic time."""
        self.timers.at(when_ns, function)

    def stop(self) -> None:
        """Leave ``run`` after this turn."""
        self._running = False

    def run(self) -> None:
        """Turn until ``stop``; closes every socket when it is done."""
        try:
            while self._running:
                self.turn()
        finally:
            self.close()

    def close_peers(self, condition: str, text: str) -> None:
        """Say goodbye to everybody (shutdown)."""
        self._sockets.close_peers(condition, text)

    def close(self) -> None:
        """Close every socket, and take no more functions."""
        self.stop_listening()
        for client in list(self.clients.values()):
            self._sockets.close(client)
        while self._parting:
            self._control.shut_more()
        self.epoll.close()
        self._inbox.close()

    def take_longest_turn(self) -> int:
        """The longest turn since this was last asked, in nanoseconds."""
        longest_ns, self.longest_turn_ns = self.longest_turn_ns, 0
        return longest_ns

    # --- one turn

    def turn(self) -> None:
        """Wait for something to happen, handle it, write what came of it."""
        ready = self.epoll.poll(self._timeout())
        now_ns = time.monotonic_ns()
        self._begin_turn(now_ns)
        if self._sockets.half_read:
            self._input.go_on(now_ns)
        clients, on_ready, turns = self.clients, self._input.on_ready, self._turns
        for fd, mask in ready:
            client = clients.get(fd)
            if client is not None:
                on_ready(client, mask, now_ns)
            else:
                self._on_other(fd, mask, now_ns)
            # Dispatched while it is in the processor's cache (bench: 4+4).
            if self.engine.turn.dirty or turns:
                self._output.dispatch()
        if self._inbox.waiting:
            self._inbox.run()
        if self.timers.first_ns <= now_ns:
            self.timers.run(now_ns)
        # Input is written while it is dispatched; the settlements of that are the next group.
        self.engine.seal()
        self._output.finish()
        if self._deferred or self._requests or self._parting:
            self._control.serve(not ready)
        self.engine.seal()
        taken_ns = time.monotonic_ns() - now_ns
        if taken_ns > self.longest_turn_ns:
            self.longest_turn_ns = taken_ns

    def _timeout(self) -> float:
        """Return how long nothing has to be done, in seconds; negative for ever."""
        if self.engine.turn.dirty or self._to_flush or self._turns or self._sockets.half_read:
            return 0.0
        if self._deferred or self._requests or self._parting:
            return self._control.delay_s()
        deadline = self.engine.next_deadline()
        if deadline == 0 or self.timers.first_ns < deadline:
            deadline = self.timers.first_ns
        if deadline == NEVER_NS:
            return -1.0
        return max((deadline - time.monotonic_ns()) / 1e9, 0.0)

    def _begin_turn(self, now_ns: int) -> None:
        try:
            self.engine.begin_turn(now_ns)
        except Exception:
            log.exception("a turn could not begin in order; the broker goes on with it")

    def _on_other(self, fd: int, mask: int, now_ns: int) -> None:
        """Handle what epoll has said of a descriptor that is no client's."""
        if fd in self._acceptor.listeners:
            self._acceptor.on_ready(fd, now_ns)
        elif fd == self._inbox.bell:
            self._inbox.silence()
        elif fd == self._store_bell:
            self.engine.attend_store()
        elif self._neighbours is not None and fd in self._neighbours.by_fd:
            self._neighbours.on_ready(fd, mask)
