"""A small threaded HTTP server: `/metrics`, `/healthz`, `/readyz`.

Each request has a thread. What it shows is asked of the reactor's thread and rendered here, so that
the reactor never waits for a watcher. A client gets one request, a bounded head and a bounded time.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from broker.errors import OperatorError
from broker.http import metrics
from broker.manage.views import Snapshot

log = logging.getLogger("sluice.http")

LARGEST_HEAD = 16 * 1024
MOST_CLIENTS = 32
# A whole request, and a pause within it.
REQUEST_S = 10.0
PAUSE_S = 5.0
# How often the server looks whether it is to stop, and who takes too long.
TICK_S = 0.2

PLAIN = "text/plain; charset=utf-8"
Answer = TypeVar("Answer")


class Ask(Protocol):
    """Runs a function on the reactor's thread and returns its result; TimeoutError if that takes too long."""

    def __call__(self, question: Callable[[], Answer], /) -> Answer: ...


class HttpServer:
    """Serves in a thread of its own from ``start`` to ``stop``; port 0 takes a free one."""

    def __init__(
        self,
        host: str,
        port: int,
        ask: Ask,
        snapshot: Callable[[], Snapshot],
        readiness: Callable[[], str] = lambda: "",
    ) -> None:
        self._ask = ask
        self._snapshot = snapshot
        self._readiness_of = readiness
        self._address = (host, port)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the port; OperatorError if it can't be had."""
        try:
            self._server = _Server(self._address, self.answer)
        except OSError as fault:
            host, port = self._address
            raise OperatorError(
                f"can't listen for HTTP on {host}:{port}: {fault.strerror or fault}"
            ) from fault
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(TICK_S,), name="http", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port and cut off who is still connected; safe to call twice."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.cut(0.0)
        self._server = self._thread = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 if it doesn't."""
        return 0 if self._server is None else int(self._server.server_address[1])

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path."""
        question = self._paths().get(path)
        if question is None:
            return 404, PLAIN, b"not found; there are /metrics, /healthz and /readyz\n"
        try:
            return question()
        except TimeoutError:
            return 503, PLAIN, b"the broker's loop does not answer\n"

    def _paths(self) -> dict[str, Callable[[], tuple[int, str, bytes]]]:
        return {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness}

    def _metrics(self) -> tuple[int, str, bytes]:
        return 200, metrics.CONTENT_TYPE, metrics.render(self._ask(self._snapshot))

    def _health(self) -> tuple[int, str, bytes]:
        """Alive is a broker whose loop turns."""
        self._ask(lambda: None)
        return 200, PLAIN, b"ok\n"

    def _readiness(self) -> tuple[int, str, bytes]:
        """Ready is a broker that takes messages in; if it doesn't, the answer says why."""
        reason = self._ask(self._readiness_of)
        if not reason:
            return 200, PLAIN, b"ready\n"
        return 503, PLAIN, f"not ready: {reason}\n".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], answer: Callable[[str], tuple[int, str, bytes]]) -> None:
        self.answer = answer
        self._clients: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without HTTPServer's look-up of our own name, which can hang where there is no DNS."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """One more client, if it isn't one too many."""
        with self._lock:
            if len(self._clients) >= MOST_CLIENTS:
                return False
            self._clients[request] = time.monotonic()
            return True

    def shutdown_request(self, request: Any) -> None:
        """The client is done with."""
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Every tick: who takes too long is cut off."""
        self.cut(REQUEST_S)

    def cut(self, older_than_s: float) -> None:
        """Shut the sockets of clients that have been here for longer."""
        latest = time.monotonic() - older_than_s
        with self._lock:
            for client, since in self._clients.items():
                if since <= latest:
                    _shut(client)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A fault on one connection: the client's if the socket broke, else ours."""
        log.info("HTTP client %s: connection ended early", client_address, exc_info=True)


def _shut(client: socket.socket) -> None:
    try:
        client.shutdown(socket.SHUT_RDWR)
    except OSError:
        log.debug("an HTTP client had gone already")


class _Head:
    """Reads lines of a request's head, and no more than ``LARGEST_HEAD`` of them."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = LARGEST_HEAD
        self.closed = False

    def readline(self, size: int = -1) -> bytes:
        """One line; LineTooLong, which becomes status 431, beyond the limit."""
        if self._left <= 0:
            raise LineTooLong("head")
        line = self._stream.readline(self._left if size < 0 else min(size, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        """Close the stream beneath."""
        self.closed = True
        self._stream.close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "sluice"
    sys_version = ""
    timeout = PAUSE_S
    error_content_type = PLAIN
    error_message_format = "%(code)d %(message)s\n"

    def setup(self) -> None:
        super().setup()
        self.rfile = cast("Any", _Head(cast("BinaryIO", self.rfile)))

    def do_GET(self) -> None:
        """The path's answer; the query is of no concern."""
        try:
            status, content_type, body = self.server.answer(self.path.partition("?")[0])
        except Exception:
            log.exception("HTTP %s failed", self.path)
            status, content_type, body = 500, PLAIN, b"internal error\n"
        self._reply(status, content_type, body)

    do_HEAD = do_GET  # noqa: N815 - the base class looks for these names

    def _refuse(self) -> None:
        self._reply(405, PLAIN, b"method not allowed\n", allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _reply(self, status: int, content_type: str, body: bytes, allow: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if allow:
            self.send_header("Allow", allow)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        log.debug("%s: %s", self.address_string(), format % args)
