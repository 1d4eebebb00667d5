"""Tunnels between a WebSocket and the broker's end of a socket pair, which here is the test's."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from broker.http.server import limits, websocket
from broker.http.server import server as server_module
from broker.http.server.server import HttpServer
from broker.http.server.websocket_handshake import WebSocketHandshake
from tests.unit.manage_world import World
from tests.wire.web import BINARY, CLOSE, close_code, frame, head, read_frame, request

MB = 1 << 20
WAIT_S = 20.0


class Loop:
    """Adopts whoever comes, or doesn't, and keeps their sockets."""

    def __init__(self) -> None:
        self.welcome = True
        self.sockets: list[socket.socket] = []
        self.gone: Callable[[], None] = lambda: None

    def adopt(
        self,
        sock: socket.socket,
        address: str,
        user: str,
        admitted: Callable[[bool], None],
        gone: Callable[[], None],
        /,
    ) -> None:
        sock.settimeout(WAIT_S)
        self.sockets.append(sock)
        self.gone = gone
        admitted(self.welcome)

    @property
    def end(self) -> socket.socket:
        """The broker's end of the last tunnel."""
        return self.sockets[-1]


@pytest.fixture
def loop() -> Iterator[Loop]:
    found = Loop()
    yield found
    for sock in found.sockets:
        sock.close()


@pytest.fixture
def server(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """Nobody is cut off for being slow, unless a test says so."""
    monkeypatch.setattr(limits, "REQUEST_S", 10 * WAIT_S)
    monkeypatch.setattr(limits, "PAUSE_S", 10 * WAIT_S)
    monkeypatch.setattr(websocket, "LINGER_S", 10 * WAIT_S)
    world = World()
    found = HttpServer(
        "127.0.0.1", 0, lambda question: question(), world.survey, entrance=WebSocketHandshake(loop.adopt)
    )
    found.start()
    yield found
    found.stop()


@pytest.fixture
def client(server: HttpServer) -> Iterator[socket.socket]:
    """A socket on which the handshake is through; it holds little, as a slow network does."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        found.settimeout(WAIT_S)
        found.connect(("127.0.0.1", server.port))
        found.sendall(request(server.port))
        assert head(found).startswith(b"HTTP/1.1 101 ")
        yield found


def taken(sock: socket.socket, data: bytes, quiet_s: float = 0.5) -> int:
    """How many bytes a socket takes of an endless stream until it has taken none for a while."""
    sock.setblocking(False)
    count = 0
    while select.select([], [sock], [], quiet_s)[1] and count < 64 * MB:
        count += sock.send(data)
    sock.settimeout(WAIT_S)
    return count


def test_bytes_go_both_ways(client: socket.socket, loop: Loop) -> None:
    client.sendall(frame(BINARY, b"to the broker"))
    assert loop.end.recv(100) == b"to the broker"
    loop.end.sendall(b"to the client")
    assert read_frame(client) == (BINARY, b"to the client")


def test_frames_to_the_client_are_small(client: socket.socket, loop: Loop) -> None:
    loop.end.setblocking(False)
    sent = loop.end.send(bytes(MB))
    got = 0
    while got < sent:
        opcode, payload = read_frame(client)
        assert (opcode, len(payload) <= 65_535) == (BINARY, True)
        got += len(payload)


def test_a_client_that_reads_nothing_stops_the_broker(client: socket.socket, loop: Loop) -> None:
    # The system's buffers of the client's connection come on top of the tunnel's.
    assert taken(loop.end, bytes(64 * 1024)) < 8 * MB


def test_a_broker_that_reads_nothing_stops_the_client(client: socket.socket, loop: Loop) -> None:
    client.sendall(frame(BINARY, size=16 * MB))
    assert taken(client, bytes(64 * 1024)) < 8 * MB
    assert len(loop.end.recv(10)) == 10


def test_what_waits_is_not_lost(client: socket.socket, loop: Loop) -> None:
    loop.end.setblocking(False)
    sent = b""
    for number in range(100_000):
        try:
            piece = number.to_bytes(4, "big") * 1000
            sent += piece[: loop.end.send(piece)]
        except BlockingIOError:
            break
    loop.end.close()
    got = b""
    while (found := read_frame(client))[0] == BINARY:
        got += found[1]
    assert got == sent
    assert found == (CLOSE, b"\x03\xe8")


def test_the_brokers_end_is_answered_by_closing(client: socket.socket, loop: Loop) -> None:
    loop.end.shutdown(socket.SHUT_WR)
    assert close_code(client) == 1000
    client.sendall(frame(BINARY, b"too late") + frame(CLOSE, b"\x03\xe8"))
    assert client.recv(1) == b""
    assert loop.end.recv(100) in (b"", b"too late")


def test_a_close_frame_waits_for_the_brokers_last_word(client: socket.socket, loop: Loop) -> None:
    client.sendall(frame(BINARY, b"close") + frame(CLOSE, b"\x03\xe8") + frame(BINARY, b"never"))
    assert loop.end.recv(100) == b"close"
    assert loop.end.recv(100) == b""
    loop.end.sendall(b"closed")
    loop.end.close()
    assert read_frame(client) == (BINARY, b"closed")
    assert close_code(client) == 1000
    assert client.recv(1) == b""


def test_no_end_takes_longer_than_it_may(
    client: socket.socket, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "LINGER_S", 0.2)
    client.sendall(frame(CLOSE))
    assert loop.end.recv(100) == b""
    # The broker says nothing.
    assert client.recv(1) == b""
    assert loop.end.recv(100) == b""


def test_a_client_that_takes_nothing_is_cut_off_once_the_broker_has_gone(
    client: socket.socket, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "LINGER_S", 0.2)
    taken(loop.end, bytes(64 * 1024))
    loop.gone()
    poll = select.poll()
    poll.register(loop.end, 0)
    [(_, events)] = poll.poll(1000 * WAIT_S)
    assert events & select.POLLHUP


def test_no_room_is_a_503(server: HttpServer, loop: Loop) -> None:
    loop.welcome = False
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as client:
        client.sendall(request(server.port))
        assert head(client).startswith(b"HTTP/1.1 503 ")
    assert loop.end.recv(1) == b""


def test_a_stop_says_1001_and_waits_for_nobody(
    server: HttpServer, client: socket.socket, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "STOP_S", WAIT_S)
    thread = server._thread
    assert thread is not None
    server.wind_down()
    loop.end.close()
    assert close_code(client) == 1001
    server.stop()
    assert not thread.is_alive(), "it waits for the client's answer"
    assert client.recv(1) == b""


def test_a_client_that_is_gone_before_it_is_admitted(server: HttpServer, loop: Loop) -> None:
    late: list[Callable[[bool], None]] = []

    def adopt(
        sock: socket.socket,
        address: str,
        user: str,
        admitted: Callable[[bool], None],
        gone: Callable[[], None],
        /,
    ) -> None:
        loop.sockets.append(sock)
        late.append(admitted)

    entrance = server._entrance
    assert entrance is not None
    entrance.adopt = adopt
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as client:
        client.sendall(request(server.port))
        while not late:
            time.sleep(0.001)
    late[0](True)
    loop.end.settimeout(WAIT_S)
    assert loop.end.recv(1) == b""
