"""The HTTP port's event loop: uvicorn's parser of requests, held to this broker's limits.

A client has a bounded head, a bounded time and one place of a few; one that asks for a WebSocket gives its
place up once the broker's loop has admitted it as a connection of its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.config.networks import network_of
from broker.http.app import PLAIN, common
from broker.http.server import limits
from broker.http.server.acceptor import Acceptor
from broker.http.server.cpu_share import CpuShare
from broker.http.server.relayed import RelayedSockets
from broker.http.server.selector import ThrottledSelector, loop_factory
from broker.http.server.stats import HttpCounts
from broker.http.server.types import Secured
from broker.http.server.websocket import Tunnel, address_of, socket_pair
from broker.http.server.websocket_handshake import HandshakeRefusal, WebSocketHandshake
from broker.loggers import about
from broker.security.tls import expires_s

if TYPE_CHECKING:
    from broker.http.cells.face import CellsFace

log = logging.getLogger("sluice.http")

# Where a request's state says whom the client's certificate names; empty for nobody.
EXTERNAL_USER, EXTERNAL_UNTIL_S = "external_user", "external_until_s"

App = Callable[[Scope, Receive, Send], Awaitable[None]]


def run(
    app: App,
    entrance: WebSocketHandshake | None,
    sock: socket.socket,
    wakes: Callable[[Callable[[], object]], bool],
    tally: HttpCounts,
    secured: Secured | None = None,
    share: CpuShare | None = None,
    relayed: RelayedSockets | None = None,
    face: CellsFace | None = None,
) -> None:
    """Serve on a listening socket, and those ``relayed``, until what ``wakes`` was given is called.

    ``face`` answers other cells.
    """
    turnstile = ThrottledSelector(share or CpuShare())
    with asyncio.Runner(loop_factory=loop_factory(turnstile)) as runner:
        config = _Config(app, entrance, tally, secured, turnstile)
        site = _Site(config, wakes, relayed or RelayedSockets(), face)
        runner.run(site.serve([sock]))


class _Config(uvicorn.Config):
    """uvicorn's settings, and what its clients need of ours."""

    def __init__(
        self,
        app: App,
        entrance: WebSocketHandshake | None,
        tally: HttpCounts,
        secured: Secured | None,
        turnstile: ThrottledSelector,
    ) -> None:
        super().__init__(
            app,
            http=_Client,
            ws="none" if entrance is None else _Client,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # Faults of ours are logged where they happen, those of clients are their own.
            log_level=logging.CRITICAL,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=limits.LARGEST_HEAD,
            timeout_keep_alive=cast("int", limits.PAUSE_S),
        )
        self.entrance = entrance
        self.secured = secured
        self.turnstile = turnstile
        self.clients: set[_Client] = set()
        self.tunnels: set[Tunnel] = set()
        self.leaving = False
        self.tally = tally
        tally.clients = lambda: len(self.clients)

    def has_room(self, address: str, now_s: float, coming: int = 0) -> bool:
        """Whether one more client may come, beside those that are ``coming``. If all places are taken, one
        makes room: of those that may, the one that has had its place for longest.
        """
        if len(self.clients) + coming < limits.MOST_CONNECTIONS:
            return True
        found = self._displaceable(address, now_s)
        if not found:
            self.tally.turned_away += 1
            return False
        oldest = min(found, key=lambda each: each.since_s)
        self.tally.displaced += 1
        self.clients.discard(oldest)
        oldest.transport.abort()
        return True

    def _displaceable(self, address: str, now_s: float) -> list[_Client]:
        """Those of whom one makes room for a client of this address:

        1. those that have let us wait for a request for a while: who sends slowly on purpose keeps out nobody
           but others like it;
        2. else, of those that let us wait, the clients of the address that has most of them: a burst of half
           requests displaces its own;
        3. else those of an address that has nearly all places, for another's client.
        """
        awaited = [each for each in self.clients if each.is_awaited]
        old = [each for each in awaited if now_s - each.since_s >= limits.GRACE_S]
        if old or not self.clients:
            return old
        if awaited:
            greedy = _most_of(awaited)[0]
            return [each for each in awaited if each.network == greedy]
        greedy, places = _most_of(self.clients)
        if greedy == network_of(address) or places * 4 <= limits.MOST_CONNECTIONS * 3:
            return []
        return [each for each in self.clients if each.network == greedy]


class _Site(uvicorn.Server):
    """Begins as uvicorn's server does; ends at once when told, with a word to whom it concerns."""

    config: _Config

    def __init__(
        self,
        config: _Config,
        wakes: Callable[[Callable[[], object]], bool],
        relayed: RelayedSockets,
        face: CellsFace | None,
    ) -> None:
        super().__init__(config)
        self._face = face
        self._wakes = wakes
        self._relayed = relayed
        self._greeter: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but that clients are let in by our greeter, as the turnstile allows."""
        await self.lifespan.startup()
        self.servers = []

        def client() -> asyncio.Protocol:
            return _Client(self.config, self.server_state, self.lifespan.state)

        now_s = asyncio.get_running_loop().time
        self._greeter = Acceptor(
            self.config.secured,
            client,
            lambda address, coming: self.config.has_room(address, now_s(), coming),
            self.config.turnstile,
        )
        for sock in sockets or []:
            self._greeter.accept(sock)
        loop = asyncio.get_running_loop()
        self._relayed.begin(partial(_tell, loop, self._take_relayed))
        if self._face is not None:
            self._face.begin(self.config.turnstile, partial(_tell, loop, self._face.take_arriving))
        self.started = True

    def _take_relayed(self) -> None:
        """Begin with clients that another member relays; there is no more room for them than for others."""
        for sock in self._relayed.take():
            if self._greeter is None or self.config.leaving:
                sock.close()
            else:
                self._greeter.welcome(sock, sock.getpeername())

    async def main_loop(self) -> None:
        """Until ``stop``."""
        leaving = asyncio.Event()
        loop = asyncio.get_running_loop()
        if not self._wakes(lambda: loop.call_soon_threadsafe(leaving.set)):
            await leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port; clients of HTTP are cut off, those of WebSocket may answer our close frame."""
        loop = asyncio.get_running_loop()
        self.config.leaving = True
        if self._greeter is not None:
            self._greeter.stop()
        # Who was accepted a moment ago becomes a client within a few turns.
        await _turns()
        for client in list(self.config.clients):
            client.transport.abort()
        deadline = loop.time() + limits.GOODBYE_S
        while self.config.tunnels and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for tunnel in list(self.config.tunnels):
            tunnel.abort()
        await _turns()


class _Client(H11Protocol):
    """One client of HTTP: a bounded head, then an answer or a WebSocket, all within a time."""

    config: _Config

    def __init__(self, config: _Config, *args: Any, **named: Any) -> None:
        super().__init__(config, *args, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._tunnel: Tunnel | None = None
        self._user = ""
        self._fd = -1
        # When its last request was answered, or it came.
        self.since_s = 0.0
        self._thrown_away = 0
        # Whether the deadline found it with an answer, or the rest of one, still to take.
        self._lags = False

    @property
    def address(self) -> str:
        """Where it comes from."""
        return self.client[0] if self.client else ""

    @property
    def network(self) -> str:
        """What is counted as one with it."""
        return network_of(self.address)

    @property
    def is_awaited(self) -> bool:
        """Whether there is no request of it, or not all of one."""
        return self._tunnel is None and self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more client, if it isn't one too many."""
        super().connection_made(transport)
        self._fd = transport.get_extra_info("socket").fileno()
        self.config.turnstile.bind(self._fd)
        self.since_s = self.loop.time()
        if self.config.leaving or not self.config.has_room(self.address, self.since_s):
            transport.abort()
            return
        self.config.clients.add(self)
        if self.config.secured is not None:
            shown = transport.get_extra_info("ssl_object")
            certificate = shown.getpeercert()
            self._user = self.config.secured.user(certificate)
            until_s = expires_s(certificate)
            self.app_state = {**self.app_state, EXTERNAL_USER: self._user, EXTERNAL_UNTIL_S: until_s}
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is done with."""
        self._part()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._tunnel is not None:
            self._tunnel.drop()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self._is_answered():
            self._thrown_away += len(data)
            if self._thrown_away > limits.LARGEST_REST:
                self.transport.abort()
                return
        self._begin()
        waiting = self.conn.their_state is h11.IDLE
        if waiting and len(data) > limits.LARGEST_HEAD and b"\r\n\r\n" not in data[: limits.LARGEST_HEAD]:
            self.refuse(HandshakeRefusal(431, "the head is too large"))
            return
        super().data_received(data)
        if self._is_answering():
            _cancel(self._pause)
            self._lend()

    def on_response_complete(self) -> None:
        """An answer is written; its rest has a time of its own, unless the request isn't all here."""
        if not self.is_awaited:
            _cancel(self._deadline)
            self._deadline = None
            if self.transport.get_write_buffer_size():
                self._set_deadline()
        self.since_s = self.loop.time()
        super().on_response_complete()
        if self._is_answering():
            self._begin()
            _cancel(self._pause)
            self._lend()

    def send_400_response(self, msg: str) -> None:
        """Called where a request can't be parsed; the parser knows the status."""
        fault = sys.exc_info()[1]
        status = fault.error_status_hint if isinstance(fault, h11.RemoteProtocolError) else 400
        self.refuse(HandshakeRefusal(status, HTTPStatus(status).phrase.lower()))

    def refuse(self, refusal: HandshakeRefusal) -> None:
        """Answer without asking the application, and close."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = f"{refusal.text}\n".encode()
        headers = [
            (b"Content-Type", PLAIN.encode()),
            (b"Content-Length", str(len(body)).encode()),
            (b"Connection", b"close"),
            *refusal.headers,
            *common(),
        ]
        self._write(h11.Response(status_code=refusal.status, headers=headers, reason=_phrase(refusal.status)))
        self._write(h11.Data(data=body))
        self._write(h11.EndOfMessage())
        self.transport.close()

    def _write(self, event: h11.Event) -> None:
        self.transport.write(self.conn.send(event) or b"")

    # --- WebSocket

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Ask the broker's loop for a place; nothing more is read until it has answered."""
        entrance = self.config.entrance
        assert entrance is not None
        own = self.transport.get_extra_info("sockname")
        verdict = entrance.judge(event.method, event.http_version, self.headers, own[0])
        if isinstance(verdict, HandshakeRefusal):
            peer = address_of(self.transport)
            log.info("WebSocket %s refused: %s", peer, verdict.text, extra=about(peer, reason=verdict.text))
            self.refuse(verdict)
            return
        try:
            ours, theirs = socket_pair()
        except OSError as fault:
            self.refuse(HandshakeRefusal(503, f"no more connections: {fault.strerror}"))
            return
        self.transport.pause_reading()
        place = partial(self._place, self._fd)
        tunnel = Tunnel(ours, entrance, self.config.tunnels, self.config.turnstile.share, place)
        self._tunnel = tunnel
        admitted = partial(_tell, self.loop, self._admitted, verdict)
        gone = partial(_tell, self.loop, tunnel.broker_gone)
        entrance.adopt(theirs, address_of(self.transport), self._user, admitted, gone)

    def _admitted(self, headers: Sequence[tuple[bytes, bytes]], welcome: bool) -> None:
        tunnel, self._tunnel = self._tunnel, None
        if tunnel is None:
            return
        if not welcome or self.transport.is_closing():
            tunnel.drop()
            self.refuse(HandshakeRefusal(503, "no more connections are accepted"))
            return
        # Its socket waits at the turnstile still: the tunnel says when it is let through.
        self._leave()
        self._write(
            h11.InformationalResponse(status_code=101, headers=list(headers), reason=b"Switching Protocols")
        )
        self.transport.set_protocol(tunnel)
        tunnel.open(self.transport, self.conn.trailing_data[0])
        self.transport.resume_reading()

    # --- time

    def _begin(self) -> None:
        """A request begins or goes on."""
        if self._deadline is None:
            self._set_deadline()
        _cancel(self._pause)
        self._pause = self.loop.call_later(limits.PAUSE_S, self.transport.abort)

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(limits.REQUEST_S, self._on_deadline)

    def _on_deadline(self) -> None:
        """Cut off a client whose request isn't whole, or that takes no answer; the time that the broker needs
        for an answer isn't the client's.
        """
        untaken = self.transport.get_write_buffer_size() > 0
        if self.is_awaited or (untaken and self._lags):
            self.transport.abort()
            return
        self._lags = untaken
        self._deadline = None
        if untaken or self._is_answering():
            self._set_deadline()

    def _lend(self) -> None:
        """Let an answer that has no end, as live figures, say so; before its task has begun."""
        if self.cycle is not None:
            extensions = cast("dict[str, object]", self.cycle.scope.setdefault("extensions", {}))
            extensions[limits.ENDLESS] = self._lift

    def _lift(self) -> None:
        _cancel(self._deadline)

    def _part(self) -> None:
        """The socket closes."""
        self.config.turnstile.release(self._fd)
        self._leave()

    def _place(self, fd: int, bounded: bool) -> None:
        self.config.turnstile.move(fd, bounded=bounded)

    def _leave(self) -> None:
        """No client of HTTP any more."""
        self.config.clients.discard(self)
        self.connections.discard(self)
        _cancel(self._pause)
        _cancel(self._deadline)

    def _is_answered(self) -> bool:
        """Whether what comes is the rest of a request that has its answer already."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _is_answering(self) -> bool:
        return self._tunnel is not None or (self.cycle is not None and not self.cycle.response_complete)


def _most_of(clients: Collection[_Client]) -> tuple[str, int]:
    """The network with most of these clients, and how many they are."""
    [most] = Counter(each.network for each in clients).most_common(1)
    return most


async def _turns() -> None:
    """What is due in the loop, and what follows from it: a socket that is closed, one that was accepted."""
    for _ in range(10):
        await asyncio.sleep(0)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    """Call a function on the loop's thread; after its end nobody needs to know."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        log.debug("the HTTP server had ended already")


def _phrase(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()
