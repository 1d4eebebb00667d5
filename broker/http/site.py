"""The HTTP port's event loop: uvicorn's parser of requests, held to this broker's limits.

A client has a bounded head, a bounded time and one place of a few; one that asks for a WebSocket gives its
place up once the broker's loop has admitted it as a connection of its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.http import server
from broker.http.api.live import ENDLESS
from broker.http.app import PLAIN, common
from broker.http.entrance import Entrance, Refusal
from broker.http.tunnel import Tunnel, address_of, socket_pair
from broker.loggers import about

log = logging.getLogger("sluice.http")

App = Callable[[Scope, Receive, Send], Awaitable[None]]


def run(
    app: App,
    entrance: Entrance | None,
    sock: socket.socket,
    wakes: Callable[[Callable[[], object]], bool],
) -> None:
    """Serve on a listening socket until what ``wakes`` was given is called."""
    asyncio.run(_Site(_Config(app, entrance), wakes).serve([sock]))


class _Config(uvicorn.Config):
    """uvicorn's settings, and what its clients need of ours."""

    def __init__(self, app: App, entrance: Entrance | None) -> None:
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
            backlog=server.BACKLOG,
            h11_max_incomplete_event_size=server.LARGEST_HEAD,
            timeout_keep_alive=cast("int", server.PAUSE_S),
        )
        self.entrance = entrance
        self.clients: set[_Client] = set()
        self.tunnels: set[Tunnel] = set()
        self.leaving = False


class _Site(uvicorn.Server):
    """Begins as uvicorn's server does; ends at once when told, with a word to whom it concerns."""

    config: _Config

    def __init__(self, config: _Config, wakes: Callable[[Callable[[], object]], bool]) -> None:
        super().__init__(config)
        self._wakes = wakes

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
        # Who was accepted a moment ago becomes a client within a few turns; a server closed meanwhile
        # would make asyncio forget the socket instead (its Server._attach asserts).
        for sock in sockets or []:
            loop.remove_reader(sock)
        await _turns()
        for listening in self.servers:
            listening.close()
        for client in list(self.config.clients):
            client.transport.abort()
        deadline = loop.time() + server.GOODBYE_S
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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more client, if it isn't one too many."""
        super().connection_made(transport)
        if self.config.leaving or len(self.config.clients) >= server.MOST_CLIENTS:
            transport.abort()
            return
        self.config.clients.add(self)
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
        self._begin()
        waiting = self.conn.their_state is h11.IDLE
        if waiting and len(data) > server.LARGEST_HEAD and b"\r\n\r\n" not in data[: server.LARGEST_HEAD]:
            self.refuse(Refusal(431, "the head is too large"))
            return
        super().data_received(data)
        if self._is_answering():
            _cancel(self._pause)
            self._lend()

    def on_response_complete(self) -> None:
        """An answer is written; the deadline falls once the request has been read and the answer sent."""
        if self.conn.their_state is h11.DONE and not self.transport.get_write_buffer_size():
            _cancel(self._deadline)
            self._deadline = None
        super().on_response_complete()
        if self._is_answering():
            self._begin()
            _cancel(self._pause)
            self._lend()

    def send_400_response(self, msg: str) -> None:
        """Called where a request can't be parsed; the parser knows the status."""
        fault = sys.exc_info()[1]
        status = fault.error_status_hint if isinstance(fault, h11.RemoteProtocolError) else 400
        self.refuse(Refusal(status, HTTPStatus(status).phrase.lower()))

    def refuse(self, refusal: Refusal) -> None:
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
        if isinstance(verdict, Refusal):
            peer = address_of(self.transport)
            log.info("WebSocket %s refused: %s", peer, verdict.text, extra=about(peer, reason=verdict.text))
            self.refuse(verdict)
            return
        try:
            ours, theirs = socket_pair()
        except OSError as fault:
            self.refuse(Refusal(503, f"no more connections: {fault.strerror}"))
            return
        self.transport.pause_reading()
        tunnel = self._tunnel = Tunnel(ours, entrance, self.config.tunnels)
        admitted = partial(_tell, self.loop, self._admitted, verdict)
        entrance.adopt(
            theirs, address_of(self.transport), admitted, partial(_tell, self.loop, tunnel.broker_gone)
        )

    def _admitted(self, headers: Sequence[tuple[bytes, bytes]], welcome: bool) -> None:
        tunnel, self._tunnel = self._tunnel, None
        if tunnel is None:
            return
        if not welcome or self.transport.is_closing():
            tunnel.drop()
            self.refuse(Refusal(503, "no more connections are accepted"))
            return
        self._part()
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
            self._deadline = self.loop.call_later(server.REQUEST_S, self.transport.abort)
        _cancel(self._pause)
        self._pause = self.loop.call_later(server.PAUSE_S, self.transport.abort)

    def _lend(self) -> None:
        """Let an answer that has no end, as live figures, say so; before its task has begun."""
        if self.cycle is not None:
            extensions = cast("dict[str, object]", self.cycle.scope.setdefault("extensions", {}))
            extensions[ENDLESS] = self._lift

    def _lift(self) -> None:
        _cancel(self._deadline)

    def _part(self) -> None:
        """No client of HTTP any more."""
        self.config.clients.discard(self)
        self.connections.discard(self)
        _cancel(self._pause)
        _cancel(self._deadline)

    def _is_answering(self) -> bool:
        return self._tunnel is not None or (self.cycle is not None and not self.cycle.response_complete)


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
