"""One route: a thread that is a client of this broker and of another, and passes messages between them.

It connects again with growing pauses for as long as it runs. Nothing it says, here or in a log, holds a
password.
"""

from __future__ import annotations

import logging
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable

from broker.client.errors import ClientError
from broker.client.link import Connection, Receiver, Sender
from broker.client.tls import Credentials
from broker.config.forwards import RouteDefinition
from broker.errors import SluiceError
from broker.forwarding.routes.backoff import Backoff
from broker.forwarding.routes.pump import MS, Pump, RouteCounts

log = logging.getLogger("sluice.routes")

CONNECTING, UP, DOWN, STOPPED = "connecting", "up", "down", "stopped"
UP_EVENT, DOWN_EVENT = "route_up", "route_down"
DIAL_S = 10.0
# A connection that has held for so long was no accident: the next pause is the shortest again.
STEADY_NS = 5_000 * MS
# How long the thread waits at most although nothing happens.
LONGEST_WAIT_MS = 1000
STOP_S = 2.0
LOCAL = "amqp://localhost"

# (route, kind of event, its fields), on the route's thread.
Told = Callable[["Route", str, dict[str, object]], None]


class Route:
    """A route that runs from ``start`` to ``stop``. Its attributes may be read by any thread.

    ``dial_here`` gives a connected socket to this broker. ``last_taker``: see Pump.
    """

    def __init__(
        self,
        definition: RouteDefinition,
        dial_here: Callable[[], socket.socket],
        told: Told,
        last_taker: bool = False,
    ) -> None:
        self.definition = definition
        self.counts = RouteCounts()
        self.connects = 0
        self.state = CONNECTING
        self.since_ns = time.monotonic_ns()
        self.last_error = ""
        self.pump: Pump | None = None
        self._dial_here = dial_here
        self._told = told
        self._last_taker = last_taker
        self._backoff = Backoff(definition.retry_min_ms, definition.retry_max_ms, random.random)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"route {definition.name}", daemon=True)

    @property
    def client_name(self) -> str:
        """The container-id and, for subscriptions, the link's name, at both brokers."""
        return client_name(self.definition.name)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def stop(self) -> None:
        """End: what has no outcome yet stays where it is. Waits a moment, not for a dial under way."""
        self.ask_to_stop()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def ask_to_stop(self) -> None:
        """End soon; doesn't wait."""
        self._stopping.set()
        os.eventfd_write(self._bell, 1)

    # --- on the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve()
            except (SluiceError, OSError) as fault:
                self._failed(fault)
            except Exception as fault:
                log.exception("route '%s' failed", self.definition.name)
                self._failed(fault)
            if not self._stopping.is_set():
                self._pause(self._backoff.next_ms())
        self._become(STOPPED)

    def _serve(self) -> None:
        """Connect to both and pass messages until something ends it, which raises, or until ``stop``."""
        wanted = self.definition
        there = Connection(
            wanted.remote_broker.url(),
            container_id=self.client_name,
            timeout_s=DIAL_S,
            idle_timeout_ms=wanted.idle_timeout_ms,
            credentials=Credentials(wanted.ca, wanted.certificate, wanted.key),
        )
        try:
            here = Connection(
                LOCAL, container_id=self.client_name, timeout_s=DIAL_S, socket=self._dial_here()
            )
            try:
                self._connect(here, there)
            finally:
                self.pump = None
                here.close()
        finally:
            there.close()

    def _connect(self, here: Connection, there: Connection) -> None:
        outwards = self.definition.direction == "out"
        kind = None if self.definition.kind == "any" else self.definition.kind
        if outwards:
            target = there.sender(
                self.definition.remote,
                tracked=True,
                window=1 << 30,
                kind=kind,
                durable=self.definition.durable,
            )
            source = here.receiver(self.definition.local, manual=True, name=self.client_name, durable=True)
        else:
            target = here.sender(self.definition.local, tracked=True, window=1 << 30)
            source = there.receiver(
                self.definition.remote,
                manual=True,
                name=self.client_name,
                durable=self.definition.durable,
                kind=kind,
            )
        pump = self.pump = Pump(source, target, self.definition.window, self.counts, self._last_taker)
        self._up()
        try:
            self._pass(here, there, pump, source, target)
        finally:
            self._give_back(here if outwards else there, pump)

    def _pass(
        self, here: Connection, there: Connection, pump: Pump, source: Receiver, target: Sender
    ) -> None:
        connections = (here, there)
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        while not self._stopping.is_set():
            flushed = [each.pump() for each in connections]
            for each in connections:
                each.ensure()
            source.is_attached()
            target.is_attached()
            now_ns = time.monotonic_ns()
            if self.state == UP and now_ns - self.since_ns > STEADY_NS:
                self._backoff.reset()
            if pump.step(now_ns):
                continue
            for each, done in zip(connections, flushed, strict=True):
                poll.register(each.fileno(), select.POLLIN | (0 if done else select.POLLOUT))
            wait_ms = min(each.due_ms(LONGEST_WAIT_MS) for each in connections)
            if pump.resume_ns > now_ns:
                wait_ms = min(wait_ms, (pump.resume_ns - now_ns) // MS + 1)
            poll.poll(wait_ms)

    def _give_back(self, connection: Connection, pump: Pump) -> None:
        """What the other end never answered for goes back; a connection that is gone has done that itself."""
        try:
            pump.give_back()
            connection.wait_until(connection.pump, 1.0)
        except (ClientError, OSError):
            pass

    def _up(self) -> None:
        self.connects += 1
        self._become(UP)
        log.info("route '%s' is up: %s", self.definition.name, self.definition.remote_broker)
        self._told(self, UP_EVENT, {"route": self.definition.name, "url": str(self.definition.remote_broker)})

    def _failed(self, fault: Exception) -> None:
        if self._stopping.is_set():
            return
        was_down = self.state == DOWN
        self.last_error = self._without_password(str(fault) or type(fault).__name__)
        self._become(DOWN)
        if not was_down:
            log.warning("route '%s' is down: %s", self.definition.name, self.last_error)
            fields: dict[str, object] = {"route": self.definition.name, "reason": self.last_error}
            self._told(self, DOWN_EVENT, fields)

    def _without_password(self, text: str) -> str:
        """A broker may repeat what it was given."""
        password = self.definition.remote_broker.password
        return text.replace(password, "***") if password else text

    def _become(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.since_ns = time.monotonic_ns()

    def _pause(self, pause_ms: int) -> None:
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        poll.poll(pause_ms)


def client_name(route: str) -> str:
    """What a route is called as a client."""
    return f"sluice.route.{route}"
