"""A broker without a listener on the calling thread, and peers whose waiting lets it turn."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Self

from proton import Collector, Connection, Transport

from broker.amqp.container import Container
from broker.amqp.control.handles import address_of
from broker.amqp.control.live import LiveConnection
from broker.amqp.links.connection import ConnectionIO
from broker.amqp.loop.reactor import Reactor
from broker.amqp.registry import ConnectionRegistry
from broker.config.broker import load_settings
from broker.config.flow import BrokerDefaults
from broker.config.policy_files import parse_policies
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.manage.model import Model
from broker.manage.process import Process
from broker.security.exchange import ListenerTrust
from broker.store.memory import MemoryStore
from tests.wire.frames import AMQP_HEADER, OPEN, RawPeer, performative

# The broker has no more to say once a peer has heard nothing for so many turns and so long. Work that costs
# more than traffic waits for its share of time (control_quota).
TURNS = 20
QUIET_S = 0.03
NO_POLICIES = "policies: []"


class LiveBroker:
    """Reactor, container and engine, as the server puts them together."""

    def __init__(
        self,
        policies: str = NO_POLICIES,
        store: MemoryStore | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> None:
        self.engine = Engine() if store is None else Engine(True, store)
        self.engine.begin_turn(10**9)
        self.engine.limit(16 << 20, 0, 0)
        self.ends: list[socket.socket] = []
        registry = ConnectionRegistry()
        process = Process(pid=1, started_ns=1, memory=lambda: 1 << 20)
        known = parse_policies(policies, "policies.yaml")
        self.model = Model(self.engine, known, BrokerDefaults(), registry, process)
        self.engine.letters.find = self.model.nodes.destination
        settings = load_settings(None, {}, flags or {})
        self.container = Container(self.engine, self.model, registry, settings)
        self.reactor = Reactor(self.container)

    def turn(self, count: int = 1) -> None:
        """Turn the loop so many times, without waiting."""
        for _ in range(count):
            self.reactor.post(lambda: None)
            self.reactor.turn()

    def sync(self) -> None:
        """Tell the engine of all that the store has written."""
        self.turn()
        self.engine.attend_store()
        self.turn(2)

    def connect(self) -> Peer:
        """Return a peer whose connection is open, with one session."""
        mine, theirs = socket.socketpair()
        self.reactor.adopt(theirs, "127.0.0.1:1", True, ListenerTrust(loopback=True), lambda: None)
        self.ends.append(mine)
        return Peer(self, mine).open().begin()

    def node(self, name: str) -> Node:
        """Return the node of a name."""
        return self.engine.topology.nodes[name]

    def close(self) -> None:
        """Close every connection, from both ends."""
        for end in self.ends:
            end.close()
        self.reactor.close()


class TurningSocket:
    """A peer's end of a socket pair; the broker turns while the peer waits."""

    def __init__(self, broker: LiveBroker, end: socket.socket) -> None:
        self.broker = broker
        self.end = end
        self.wait_s = 0.0
        self.heard = b""
        end.setblocking(False)

    def sendall(self, data: bytes, /) -> None:
        while data:
            try:
                data = data[self.end.send(data) :]
            except BlockingIOError:
                self.broker.turn()

    def recv(self, size: int, /) -> bytes:
        turns, until = 0, time.monotonic() + self.wait_s
        while turns < TURNS or time.monotonic() < until:
            try:
                data = self.end.recv(size)
            except BlockingIOError:
                self.broker.turn()
                turns += 1
            else:
                self.heard += data
                return data
        raise TimeoutError

    def settimeout(self, seconds: float | None, /) -> None:
        self.wait_s = seconds or 0.0

    def shutdown(self, how: int, /) -> None:
        self.end.shutdown(how)

    def close(self) -> None:
        self.end.close()


class Peer(RawPeer):
    """A peer of a live broker. ``control`` is the broker's side of its connection."""

    def __init__(self, broker: LiveBroker, end: socket.socket) -> None:
        self.turning = TurningSocket(broker, end)
        super().__init__(0, self.turning)
        self.broker = broker

    def authenticate(self) -> Self:
        self.send(AMQP_HEADER)
        return self

    @property
    def control(self) -> LiveConnection:
        """The newest connection of the broker's."""
        return list(self.broker.container.peers)[-1]

    @property
    def io(self) -> ConnectionIO:
        """Its path of messages."""
        return self.control.wire

    def turn(self) -> Self:
        """Have the broker handle what was sent, and read what it answered."""
        self.broker.turn(4)
        self.hear()
        return self

    def hear(self) -> list[int]:
        """Read all there is; the codes of every frame so far."""
        while self._read_frame(time.monotonic() + QUIET_S) is not None:
            pass
        return [each.code for each in self.log]


class Guarded:
    """A connection without a socket, whose peer's frames go through the guard to Proton."""

    def __init__(self) -> None:
        self.transport = Transport(mode=Transport.SERVER)
        self.connection = Connection()
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        pointers = address_of(self.transport._impl), address_of(self.collector._impl)
        self.events: list[int] = []
        self.io = ConnectionIO(-1, *pointers, self._on_event, [], [])
        self.io.session_bytes = 1 << 20
        self.io.owner = self
        self.id = "c1"
        self.faults: list[tuple[str, str, str]] = []
        self.closed: tuple[str, str] | None = None
        self.guard = self.io.incoming
        self.io.feed(AMQP_HEADER)

    def _on_event(self, kind: int, event: int) -> None:
        self.events.append(kind)

    def feed(self, *frames: bytes) -> Self:
        """Hand over frames, each on its own."""
        for frame in frames:
            self.io.feed(frame)
        return self

    def open(self) -> Self:
        """Hand over an open frame."""
        return self.feed(performative(OPEN, "peer"))

    def allow(self, transfers: int) -> None:
        """Open the window of the first session, for Proton wider than for the guard."""
        session = self.connection.session_head(0)
        assert session is not None
        self.io.set_window(address_of(session._impl), 1000)
        self.connection.open()
        session.open()
        self.transport.pending()
        self.guard.allow(0, transfers)

    # --- asked by the connection

    def on_link_fault(self, name: str, condition: str, text: str, client_sends: bool) -> None:
        self.faults.append((name, condition, text))

    def answer_sessions(self) -> None:
        self.io.incoming.session_echoes.clear()

    def close(self, condition: str, text: str) -> None:
        self.closed = (condition, text)
