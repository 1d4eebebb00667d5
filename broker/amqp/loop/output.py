"""Output of a turn: messages are dispatched, and bytes go to clients' sockets."""

from __future__ import annotations

import logging

from broker.amqp.container import Container
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.loop.sockets import ClientSockets
from broker.amqp.loop.timeouts import ClientTimeouts

log = logging.getLogger("sluice.amqp")

# Rounds of dispatch and flush in one turn, before new input is looked at again.
ROUNDS = 8


class TurnOutput:
    """Sends what a turn has come to."""

    def __init__(self, container: Container, sockets: ClientSockets, timeouts: ClientTimeouts) -> None:
        self._engine = container.engine
        self._turns = container.turns
        self._answers = container.answers
        self._to_flush = container.to_flush
        self._sockets = sockets
        self._clients = sockets.by_fd
        self._timeouts = timeouts
        self._neighbours = container.neighbours

    def finish(self) -> None:
        """Dispatch and flush until nothing is left to do, or for ``ROUNDS``; the next turn goes on then."""
        for _ in range(ROUNDS):
            if self._engine.turn.dirty or self._turns:
                self.dispatch()
            if self._answers:
                self._answer()
            if not self._to_flush:
                return
            wires = self._to_flush[:]
            self._to_flush.clear()
            for wire in wires:
                self._flush(wire.fd)

    def dispatch(self) -> None:
        """End the engine's turn, and deal out what came free of connections' windows."""
        try:
            self._engine.end_turn()
            if self._turns:
                self._take_turns()
        except Exception:
            log.exception("a turn failed; the broker goes on with the next")
            self._engine.recover()

    def _take_turns(self) -> None:
        for _ in range(ROUNDS):
            wires = self._turns[:]
            self._turns.clear()
            for wire in wires:
                wire.turning = False
                self._take_turns_of(wire)

    def _take_turns_of(self, wire: Wire) -> None:
        shared = wire.shared
        idle = 0
        # A link that took nothing of its share has had its turn: when all have, none can take more.
        while shared is not None and shared.due() and idle <= len(wire.links):
            before = shared.unsettled
            wire.turning = True
            wire.take_turns()
            self._engine.end_turn()
            wire.turning = False
            idle = 0 if shared.unsettled > before else idle + 1

    def _answer(self) -> None:
        """Answer drains; those whose messages are not all written yet are asked again in the next turn."""
        self._answers[:] = [link for link in self._answers if not self._is_answered(link)]

    def _is_answered(self, link: ConsumerLink) -> bool:
        try:
            return bool(link.answer_drain())
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            client = self._clients.get(link.connection.fd)
            if client is not None:
                self._sockets.crash(client, fault)
            return True

    def _flush(self, fd: int) -> None:
        client = self._clients.get(fd)
        if client is None or client.peer is None:
            if client is None and self._neighbours is not None:
                self._neighbours.flush(fd)
            return
        wire = client.peer.wire
        try:
            alive = wire.pump_out()
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            self._sockets.crash(client, fault)
            return
        if not alive or (client.ending and not wire.blocked):
            self._sockets.linger(client)
        elif wire.blocked != client.armed or (wire.paused or wire.input_stopped) != client.paused:
            if wire.blocked and not client.armed:
                client.taken_ns = self._engine.turn.now_ns
                self._timeouts.await_taken(client)
            client.armed = wire.blocked
            client.paused = wire.paused or wire.input_stopped
            self._sockets.watch(client)
            if (wire.incoming.more or wire.held) and not client.paused and not client.deferred:
                self._sockets.half_read[client] = None
