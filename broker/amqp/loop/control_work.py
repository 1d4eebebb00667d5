"""Work that is no message, done in slices as far as the control quota has time."""

from __future__ import annotations

import logging
import time

from broker.amqp.container import Container
from broker.amqp.loop.accept import ClientAcceptor
from broker.amqp.loop.input import ClientInput
from broker.amqp.loop.output import TurnOutput
from broker.amqp.loop.sockets import ClientSockets

log = logging.getLogger("sluice.amqp")


class ControlWork:
    """Serves deferred sockets, management requests, links of connections that are over: in turn."""

    def __init__(
        self,
        container: Container,
        sockets: ClientSockets,
        acceptor: ClientAcceptor,
        reading: ClientInput,
        output: TurnOutput,
    ) -> None:
        self._container = container
        self._lane = container.lane
        self._parting = container.parting
        self._requests = container.requests.waiting
        self._sockets = sockets
        self._acceptor = acceptor
        self._input = reading
        self._output = output

    def delay_s(self) -> float:
        """Return how long the loop may sleep while there is some, in seconds."""
        now_ns = time.monotonic_ns()
        # A moment for whoever moves messages, whose next may be on its way.
        return 0.0 if self._lane.is_quiet(now_ns) or self._lane.may_serve(now_ns) else 0.001

    def serve(self, idle: bool) -> None:
        """Do one slice for one connection, or a few that come, if there is time or the loop is ``idle``."""
        began_ns = time.monotonic_ns()
        if not self._lane.may_serve(began_ns) and not (idle or self._lane.is_quiet(began_ns)):
            return
        # Those who come, requests and connections that are over take turns.
        work = [
            function
            for function, waits in (
                (self._serve_next, self._lane.waiting),
                (self._answer_request, self._requests),
                (self.shut_more, self._parting),
            )
            if waits
        ]
        work[self._lane.served_total % len(work)]()
        self._output.finish()
        self._lane.charge(time.monotonic_ns() - began_ns)

    def _serve_next(self) -> None:
        fd = self._lane.take()
        client = self._sockets.by_fd.get(fd)
        now_ns = time.monotonic_ns()
        if fd in self._acceptor.listeners:
            self._acceptor.take_up(fd, now_ns)
        elif client is not None and client.deferred:
            self._input.serve(client, now_ns)

    def _answer_request(self) -> None:
        self._lane.served_total += 1
        try:
            self._container.requests.answer_oldest()
        except Exception:
            log.exception("a management request failed")

    def shut_more(self) -> None:
        """Shut more links of a connection that is over."""
        self._lane.served_total += 1
        try:
            self._container.shut_more()
        except Exception:
            log.exception("a connection's links could not be shut in order")
            self._parting.popitem()
