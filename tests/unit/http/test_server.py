"""The HTTP server over a real socket: paths, methods, and clients that misbehave."""

from __future__ import annotations

import http.client
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from broker.errors import OperatorError
from broker.http.server import limits
from broker.http.server import server as module
from broker.http.server.server import HttpServer
from broker.manage.survey import SurveyResult
from tests.unit.manage_world import World
from tests.wire.conftest import wait_until

Answer = TypeVar("Answer")
# How long a client waits: the first one's server loads half a dozen libraries before it answers.
WAIT_S = 60.0


class Reactor:
    """Answers at once, unless it is told not to."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.reason = ""

    def ask(self, question: Callable[[], Answer], /) -> Answer:
        if self.fault is not None:
            raise self.fault
        return question()


@pytest.fixture
def reactor() -> Reactor:
    return Reactor()


@pytest.fixture
def server(reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """Nobody is cut off for being slow, or loses its place, unless a test says so."""
    for name in ("REQUEST_S", "PAUSE_S", "GRACE_S"):
        monkeypatch.setattr(limits, name, 10 * WAIT_S)
    world = World()
    world.queue("orders")
    found = HttpServer("127.0.0.1", 0, reactor.ask, lambda: reactor.ask(world.survey), lambda: reactor.reason)
    found.start()
    yield found
    found.stop()


def get(server: HttpServer, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    """Status, content type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read()
    finally:
        connection.close()


def raw(server: HttpServer, request: bytes) -> bytes:
    """What comes back until the server closes, which it may do before it has read all."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as client:
        with suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(request)
        found = b""
        try:
            while part := client.recv(65536):
                found += part
        except ConnectionResetError:
            return found
        return found


def is_closed(client: socket.socket) -> bool:
    """Whether the other end has gone; a reset where it never looked at the connection."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def is_reset(client: socket.socket) -> bool:
    """Whether the other end no longer takes a byte."""
    try:
        client.send(b" ")
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def test_metrics(server: HttpServer) -> None:
    status, content_type, body = get(server, "/metrics?x=1")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'sluice_queue_depth_messages{queue="orders"} 0' in body


def test_health_and_readiness(server: HttpServer, reactor: Reactor) -> None:
    assert get(server, "/healthz")[::2] == (200, b"ok\n")
    assert get(server, "/readyz")[::2] == (200, b"ready\n")
    reactor.reason = "the disk is full"
    assert get(server, "/healthz")[0] == 200
    assert get(server, "/readyz")[::2] == (503, b"not ready: the disk is full\n")


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_a_loop_that_does_not_answer_is_a_503(server: HttpServer, reactor: Reactor, path: str) -> None:
    reactor.fault = TimeoutError("no answer")
    assert get(server, path)[0] == 503


def test_a_bug_of_ours_is_a_500_without_its_details(server: HttpServer, reactor: Reactor) -> None:
    reactor.fault = RuntimeError("secret")
    status, _, body = get(server, "/metrics")
    assert (status, body) == (500, b"internal error\n")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/../etc/passwd", "/METRICS"])
def test_other_paths_are_not_found(server: HttpServer, path: str) -> None:
    assert get(server, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_not_allowed(server: HttpServer, method: str) -> None:
    assert get(server, "/metrics", method)[0] == 405
    assert b"Allow: GET, HEAD" in raw(server, method.encode() + b" /metrics HTTP/1.0\r\n\r\n")


def test_head_has_no_body(server: HttpServer) -> None:
    status, _, body = get(server, "/healthz", "HEAD")
    assert (status, body) == (200, b"")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 10_000 + b"\r\n", b"431"),
        (b"GET / HTTP/1.0\r\na: " + b"b" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.0\r\n\r\n", b"4"),
        (b"NONSENSE\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
    ],
)
def test_what_is_no_request_of_ours_is_refused(server: HttpServer, request_: bytes, status: bytes) -> None:
    found = raw(server, request_)
    assert status in found[:16] or found == b""
    assert get(server, "/healthz")[0] == 200


def test_a_client_that_dawdles_is_cut_off(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.2)
    assert raw(server, b"GET /healthz HTTP/1.0\r\nSlow: ") == b""


@pytest.mark.parametrize(
    "request_", [b"GET /healthz HTTP/1.0\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_the_time_that_the_broker_takes_for_an_answer_is_not_the_clients(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.2)
    monkeypatch.setattr(limits, "PAUSE_S", 0.1)

    def ask(question: Callable[[], Answer]) -> Answer:
        time.sleep(1.0)
        return question()

    server = HttpServer("127.0.0.1", 0, ask, World().survey)
    server.start()
    try:
        assert raw(server, request_).startswith(b"HTTP/1.1 200")
    finally:
        server.stop()


def test_a_client_that_takes_no_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end of the connection is reset by what it sends after that."""
    monkeypatch.setattr(limits, "REQUEST_S", 0.2)
    world = World()
    for number in range(5_000):
        world.queue(f"queue.that.has.a.long.name.{number}")
    server = HttpServer("127.0.0.1", 0, lambda question: question(), world.survey)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as client:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
            wait_until(lambda: is_reset(client), WAIT_S, "it to be cut off")
    finally:
        server.stop()


def test_one_client_too_many_is_turned_away(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is being answered keeps its place."""
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 1)
    asked, answer = threading.Event(), threading.Event()

    def ask(question: Callable[[], Answer]) -> Answer:
        asked.set()
        assert answer.wait(WAIT_S)
        return question()

    slow = HttpServer("127.0.0.1", 0, ask, World().survey)
    slow.start()
    with socket.create_connection(("127.0.0.1", slow.port), timeout=WAIT_S) as first:
        first.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert asked.wait(WAIT_S)
        assert raw(slow, b"") == b""
        answer.set()
        assert first.recv(100).startswith(b"HTTP/1.1 200")
    slow.stop()


def test_half_a_request_makes_room_for_a_whole_one(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest first: whoever came last keeps its place."""
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 3)
    with ExitStack() as stack:
        halves = []
        for _ in range(3):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S))
            half.sendall(b"GET /healthz HTTP/1.0\r\n")
            halves.append(half)
            # Those before it have their places by now, and are not accepted with it.
            assert get(server, "/healthz")[0] == 200
        assert is_closed(halves[0])
        halves[2].sendall(b"\r\n")
        assert halves[2].recv(100).startswith(b"HTTP/1.1 200")


def test_more_at_once_than_are_answered_is_told_when_to_come_back_but_probes_are_answered(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_CLIENTS", 2)
    surveying, go_on = threading.Semaphore(0), threading.Event()

    def survey() -> SurveyResult:
        surveying.release()
        assert go_on.wait(WAIT_S)
        return reactor.ask(World().survey)

    server = HttpServer("127.0.0.1", 0, reactor.ask, survey)
    server.start()
    busy = [socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) for _ in range(2)]
    for each in busy:
        each.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert surveying.acquire(timeout=WAIT_S)
    told = raw(server, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 503")
    assert b"Retry-After: 1" in told
    for path in ("/healthz", "/readyz"):
        assert get(server, path)[0] == 200
    go_on.set()
    for each in busy:
        assert each.recv(12) == b"HTTP/1.1 200"
        each.close()
    server.stop()


def test_an_answer_on_a_connection_that_was_kept_is_not_held_back(server: HttpServer) -> None:
    """Where its second part waits for the ack of the first (Nagle), an answer takes 40 ms and more."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        assert nodelay_of_the_other_end(client)


def nodelay_of_the_other_end(client: socket.socket) -> bool:
    """TCP_NODELAY of the socket, in this process, that a client is connected to."""
    for place in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if stat.S_ISSOCK(place.stat().st_mode):
                with socket.socket(fileno=os.dup(int(place.name))) as found:
                    if found.getpeername() == client.getsockname():
                        return bool(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    raise AssertionError("no socket is the other end")


def test_stop_closes_the_port_and_ends_the_thread(reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_S", WAIT_S)
    # At an address of its own: at the usual one anybody may listen at the port that has just come free.
    server = HttpServer("127.72.0.1", 0, reactor.ask, World().survey)
    server.start()
    port, thread = server.port, server._thread
    assert thread is not None
    with socket.create_connection(("127.72.0.1", port), timeout=WAIT_S) as client:
        server.stop()
        assert is_closed(client)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.72.0.1", port), timeout=WAIT_S)
    server.stop()
    assert not thread.is_alive()


def test_a_stop_waits_for_one_part_that_is_being_loaded_and_no_more(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def load(name: str) -> None:
        loaded.append(name)
        begun.set()
        assert go_on.wait(WAIT_S)

    monkeypatch.setattr(module, "import_module", load)
    monkeypatch.setattr(module, "STOP_S", WAIT_S)
    server = HttpServer("127.0.0.1", 0, reactor.ask, World().survey)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S):
        assert begun.wait(WAIT_S)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    wait_until(lambda: server._stopped, WAIT_S, "the stop to begin")
    assert stopping.is_alive()
    go_on.set()
    stopping.join(WAIT_S)
    assert (stopping.is_alive(), loaded) == (False, [module.PARTS[0]])


def test_nothing_is_loaded_before_the_first_client(reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = threading.Event()
    monkeypatch.setattr(module, "import_module", lambda _: loaded.set())
    server = HttpServer("127.0.0.1", 0, reactor.ask, World().survey)
    server.start()
    server.stop()
    assert server._thread is None
    assert not loaded.is_set()


def test_a_port_in_use_is_said_plainly(server: HttpServer, reactor: Reactor) -> None:
    second = HttpServer("127.0.0.1", server.port, reactor.ask, World().survey)
    with pytest.raises(OperatorError, match=f"127.0.0.1:{server.port}"):
        second.start()
    assert second.port == 0
