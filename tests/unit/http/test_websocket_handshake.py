"""Who may come in over WebSocket: the opening handshake, header by header."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from broker.http.server.websocket_handshake import HandshakeRefusal, WebSocketHandshake

# RFC 6455 §1.3's own example.
GOOD = {
    "host": "broker.example.org:8672",
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
    "sec-websocket-protocol": "amqp",
}
OUTSIDE = "192.0.2.7"


def never(
    sock: socket.socket,
    address: str,
    user: str,
    admitted: Callable[[bool], None],
    gone: Callable[[], None],
    /,
) -> None:
    raise AssertionError("the handshake only judges")


def judged(
    *origins: str, own: str = OUTSIDE, method: bytes = b"GET", version: bytes = b"1.1", **changed: str | None
) -> int:
    """The status that answers the good handshake with these headers changed, or left out where None."""
    headers = GOOD | {name.replace("_", "-"): value for name, value in changed.items()}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items() if value is not None]
    verdict = WebSocketHandshake(never, origins).judge(method, version, pairs, own)
    return verdict.status if isinstance(verdict, HandshakeRefusal) else 101


def test_the_answer_is_the_rfcs() -> None:
    pairs = [(name.encode(), value.encode()) for name, value in GOOD.items()]
    verdict = WebSocketHandshake(never).judge(b"GET", b"1.1", pairs, OUTSIDE)
    assert not isinstance(verdict, HandshakeRefusal)
    assert (b"Sec-WebSocket-Accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") in verdict
    assert (b"Sec-WebSocket-Protocol", b"amqp") in verdict


@pytest.mark.parametrize("offered", ["amqp", "binary, AMQPWSB10, amqp", "binary,amqp"])
def test_amqp_is_taken_from_what_is_offered(offered: str) -> None:
    assert judged(sec_websocket_protocol=offered) == 101


@pytest.mark.parametrize("offered", [None, "", "mqtt", "AMQP", "amqp1.0", "binary, AMQPWSB10"])
def test_without_it_there_is_no_websocket(offered: str | None) -> None:
    assert judged(sec_websocket_protocol=offered) == 400


@pytest.mark.parametrize("key", [None, "", "short", "dGhlIHNhbXBsZQ==", "=" * 24, "ä" * 16])
def test_the_key_is_sixteen_bytes(key: str | None) -> None:
    assert judged(sec_websocket_key=key) == 400


@pytest.mark.parametrize("version", [None, "8", "13, 8"])
def test_another_version_is_told_ours(version: str | None) -> None:
    assert judged(sec_websocket_version=version) == 426


def test_it_begins_with_get_in_http_1_1() -> None:
    assert judged(method=b"POST") == 400
    assert judged(version=b"1.0") == 400


@pytest.mark.parametrize(
    "origin",
    ["http://broker.example.org:8672", "https://broker.example.org:8672", "http://BROKER.example.org:8672"],
)
def test_a_page_of_ours_may_connect(origin: str) -> None:
    assert judged(origin=origin) == 101


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example.org:8672",
        "http://broker.example.org",
        "http://broker.example.org:8673",
        "http://broker.example.org.evil.org:8672",
        "http://evil.org/broker.example.org:8672",
        "null",
        "",
        "file://",
        "http://",
        "http://broker.example.org:x",
        "http://[",
    ],
)
def test_a_page_of_another_site_may_not(origin: str) -> None:
    assert judged(origin=origin) == 403


def test_a_port_that_is_the_schemes_own_may_be_left_out() -> None:
    assert judged(host="broker.example.org", origin="https://broker.example.org") == 101
    assert judged(host="broker.example.org", origin="https://broker.example.org:8443") == 403
    assert judged(host="broker.example.org:80", origin="http://broker.example.org") == 101


def test_configured_pages_may_connect() -> None:
    assert judged("https://console.example.org", origin="https://console.example.org") == 101
    assert judged("https://console.example.org", origin="http://console.example.org") == 403
    assert judged("*", origin="https://evil.org") == 101


def test_a_name_pointed_at_this_machine_is_no_page_of_ours() -> None:
    """DNS rebinding: the page's own name leads to a loopback address, and Host agrees with Origin."""
    assert judged(own="127.0.0.1", host="evil.org:8672", origin="http://evil.org:8672") == 403
    assert judged(own="127.0.0.1", host="localhost:8672", origin="http://localhost:8672") == 101
    assert judged(own="127.0.0.1", host="127.0.0.1:8672", origin="http://127.0.0.1:8672") == 101
    assert judged(own="::1", host="[::1]:8672", origin="http://[::1]:8672") == 101
    assert judged("http://evil.org:8672", own="127.0.0.1", origin="http://evil.org:8672") == 101
    assert judged(own="127.0.0.1", host="evil.org:8672") == 101, "no browser, no page"


def test_a_strange_host_is_no_fault_of_ours() -> None:
    for host in ("", "[", "a:b:c", "x:99999", "ä"):
        assert judged(host=host, origin="http://broker.example.org:8672") == 403
