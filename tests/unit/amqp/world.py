"""A broker without a disk on the calling thread, and clients that speak frames to it over socket pairs.

Its loop turns while a client waits for an answer: nothing here sleeps, and nothing runs beside it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence

from broker.amqp.container import Container
from broker.amqp.control.connection import ConnectionControl
from broker.amqp.loop.reactor import Reactor
from broker.amqp.registry import ConnectionRegistry
from broker.config.broker import load_settings
from broker.config.flow import BrokerDefaults
from broker.config.policy_files import parse_policies
from broker.engine.engine import Engine
from broker.manage.model import Model
from broker.manage.process import Process
from broker.security.acl import Acl
from broker.security.exchange import ListenerTrust
from tests.wire.frames import (
    ATTACH,
    DETACH,
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    Described,
    Frame,
    RawPeer,
    UByte,
    performative,
)

HERE = ListenerTrust(loopback=True)
# How long an answer may take on a busy machine: the loop gives connecting and attaching a share of its time.
PATIENCE_S = 10.0
SECOND_NS = 1_000_000_000


class AmqpWorld:
    """Engine, model, container and reactor of one broker."""

    def __init__(
        self,
        policies: str = "policies: []",
        acl: Acl | None = None,
        hosts: Sequence[str] = (),
        limits: Mapping[str, object] | None = None,
    ) -> None:
        flags: dict[str, object] = {f"limits.{name}": value for name, value in (limits or {}).items()}
        if hosts:
            flags["virtual_hosts"] = list(hosts)
        settings = load_settings(None, {}, flags)
        self.engine = Engine()
        self.engine.begin_turn(SECOND_NS)
        self.engine.limit(16 << 20, 0, 0)
        self.registry = ConnectionRegistry()
        process = Process(pid=1, started_ns=1, memory=lambda: 1 << 20)
        known = parse_policies(policies, "policies.yaml")
        self.model = Model(self.engine, known, BrokerDefaults(), self.registry, process)
        self.engine.letters.find = self.model.nodes.destination
        if acl is not None:
            self.model.authority.replace(acl, hosts)
        self.container = Container(self.engine, self.model, self.registry, settings)
        self.reactor = Reactor(self.container)
        self._clients: list[RawPeer] = []

    def turn(self, count: int = 1) -> None:
        """Turn so often without waiting."""
        for _ in range(count):
            self.reactor.post(_nothing)
            self.reactor.turn()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Turn until something is true; AssertionError with ``what`` where it doesn't become so."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come"
            self.turn()

    def client(self, door: ListenerTrust = HERE, address: str = "127.0.0.1:1") -> RawPeer:
        """A client that has connected and said nothing yet."""
        mine, theirs = socket.socketpair()
        self.reactor.adopt(theirs, address, True, door, _nothing)
        found = RawPeer(0, TurningStream(self, mine))
        self._clients.append(found)
        return found

    def begun(self, container: str = "raw") -> RawPeer:
        """A client with a session."""
        return self.client().open(container=container).begin()

    def connection(self, container: str = "raw") -> ConnectionControl:
        """The broker's side of the connection of a container."""
        [found] = [each for each in self.registry.peers if each.name == container]
        assert isinstance(found, ConnectionControl)
        return found

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if not self.reactor.epoll.closed:
            self.reactor.close()


class TurningStream:
    """A client's socket; the broker's loop turns while the client waits for something to read."""

    def __init__(self, world: AmqpWorld, sock: socket.socket) -> None:
        self._world = world
        self._socket = sock
        self._timeout_s = PATIENCE_S
        sock.setblocking(False)

    def sendall(self, data: bytes, /) -> None:
        self._socket.sendall(data)
        self._world.turn()

    def recv(self, size: int, /) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            try:
                return self._socket.recv(size)
            except BlockingIOError:
                self._world.turn()
        raise TimeoutError

    def settimeout(self, seconds: float | None, /) -> None:
        self._timeout_s = PATIENCE_S if seconds is None else seconds

    def shutdown(self, how: int, /) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()


def _nothing() -> None:
    """Somebody wants the loop to turn."""


def attach(
    client: RawPeer,
    name: str,
    handle: int,
    *,
    source: Sequence[object] | None = None,
    target: Sequence[object] | None = None,
    receives: bool = True,
    properties: Mapping[str, object] | None = None,
) -> Frame:
    """Attach a link whose source and target have these fields; None is a null terminus."""
    termini = (
        None if source is None else Described(SOURCE, source),
        None if target is None else Described(TARGET, target),
    )
    count = () if receives else (None, None, 0)
    role = RECEIVER if receives else SENDER
    client.send(performative(ATTACH, name, handle, role, UByte(2), UByte(0), *termini, *count))
    return client._attached(handle)


def detach(client: RawPeer, handle: int, *, closed: bool = True) -> Frame:
    """Detach a link and return the answer."""
    client.send(performative(DETACH, handle, closed))
    return client.expect(DETACH)
