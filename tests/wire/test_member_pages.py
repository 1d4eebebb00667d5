"""Plain HTTP on the port for members: pages of the member's own, whole, in pieces, and what is refused."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from broker.server.cluster import header, member_port
from broker.server.cluster.header import RelayedClient
from broker.server.cluster.member_port import MemberPort
from broker.server.cluster.pages import Answered
from tests.wire.conftest import wait_until
from tests.wire.relayworld import SECRET

pytestmark = pytest.mark.wire

LARGE = b"x" * 3_000_000


def page(path: str) -> Answered:
    if path == "/readyz":
        return 503, "text/plain", b"not ready\n"
    return (200, "text/plain", LARGE) if path == "/large" else (404, "text/plain", b"nothing\n")


def nobody(client: RelayedClient) -> str:
    return "nobody is taken here"


@pytest.fixture
def port() -> Iterator[MemberPort]:
    found = MemberPort("127.0.0.1", 0, "main", SECRET, lambda: "a standby", nobody, page)
    yield found
    found.stop()


def read(sock: socket.socket) -> bytes:
    found = b""
    try:
        while data := sock.recv(1 << 16):
            found += data
    except ConnectionResetError:
        pass
    return found


def asked(number: int, *pieces: bytes, between: Callable[[], object] = lambda: None) -> bytes:
    with socket.create_connection(("127.0.0.1", number), 10) as sock:
        for each in pieces:
            sock.sendall(each)
            between()
        return read(sock)


def test_a_probe_is_answered(port: MemberPort) -> None:
    number = port.start()
    found = asked(number, b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert found.endswith(b"\r\n\r\nnot ready\n")
    assert asked(number, b"GET /else HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert (port.asked_total, port.bad_total) == (2, 0)


def test_a_request_may_come_in_pieces(port: MemberPort) -> None:
    number = port.start()
    pieces = [bytes([each]) for each in b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"]
    assert asked(number, *pieces).endswith(b"not ready\n")


def test_a_large_page_is_whole(port: MemberPort) -> None:
    found = asked(port.start(), b"GET /large HTTP/1.1\r\n\r\n")
    assert found.partition(b"\r\n\r\n")[2] == LARGE


def test_what_is_no_request_is_closed_and_counted(port: MemberPort) -> None:
    number = port.start()
    bad = [b"POST /readyz HTTP/1.1\r\n\r\n", b"GETS / HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 9000]
    for each in bad:
        assert asked(number, each) == b""
    wait_until(lambda: port.bad_total == len(bad), 10, "all to be counted")
    with socket.create_connection(("127.0.0.1", number), 10) as sock:
        sock.sendall(b"GET /readyz HTTP/1.1\r\n")
        sock.shutdown(socket.SHUT_WR)
        assert read(sock) == b""


def test_a_slow_request_has_the_time_of_a_header(port: MemberPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_port, "HEADER_NS", 200_000_000)
    assert asked(port.start(), b"GET /readyz HTTP/1.1\r\n") == b""
    assert (port.asked_total, port.bad_total) == (0, 1)


def test_a_client_that_stays_is_dropped_without_a_complaint(
    port: MemberPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_port, "HEADER_NS", 200_000_000)
    with socket.create_connection(("127.0.0.1", port.start()), 10) as sock:
        sock.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert read(sock).endswith(b"not ready\n")
        wait_until(lambda: not port._waiting, 10, "its end")
    assert (port.asked_total, port.bad_total) == (1, 0)


def test_headers_of_members_are_read_as_before(port: MemberPort) -> None:
    number = port.start()
    client = RelayedClient("main", "b", "amqp://127.0.0.1:0", "192.0.2.1", 1, "127.0.0.1", 2)
    said = header.signed(client, SECRET, time.time_ns() // 1_000_000, b"n" * 16)
    found = asked(number, *[bytes([each]) for each in said])
    assert header.read_answer(found) == (header.NOT_OWNER, "a standby")
