"""Who may ask the HTTP API and who may change something, by method, address and headers."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Scope

from broker.http.api.guard import Guard

OWN = b"127.0.0.1:8672"


def scope(
    method: str = "GET", server: str = "127.0.0.1", host: bytes | None = OWN, **headers: bytes
) -> Scope:
    given = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    if host is not None:
        given.append((b"host", host))
    return {"type": "http", "method": method, "headers": given, "server": (server, 8672)}


def status(found: tuple[int, str] | None) -> int:
    return 200 if found is None else found[0]


JSON = b"application/json"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reading_needs_nothing(method: str) -> None:
    assert Guard().judge(scope(method)) is None
    assert Guard().judge(scope(method, host=None)) is None


@pytest.mark.parametrize(
    ("method", "headers", "wanted"),
    [
        ("POST", {"content_type": JSON}, 200),
        ("POST", {"content_type": b"Application/JSON; charset=utf-8"}, 200),
        ("POST", {}, 415),
        ("POST", {"content_type": b"text/plain"}, 415),
        ("POST", {"content_type": b"text/plain; x=application/json"}, 415),
        ("PUT", {}, 415),
        ("PATCH", {}, 415),
        ("DELETE", {}, 200),
        ("DELETE", {"content_length": b"0"}, 200),
        ("DELETE", {"content_length": b"10"}, 415),
        ("DELETE", {"transfer_encoding": b"chunked"}, 415),
        ("DELETE", {"content_length": b"10", "content_type": JSON}, 200),
    ],
)
def test_writing_takes_json(method: str, headers: dict[str, Any], wanted: int) -> None:
    assert status(Guard().judge(scope(method, **headers))) == wanted


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "BREW"])
def test_whatever_does_not_read_is_a_write(method: str) -> None:
    assert Guard("not here").judge(scope(method, content_type=JSON)) == (403, "not here")
    assert Guard("not here").judge(scope("GET")) is None


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        (b"http://127.0.0.1:8672", 200),
        (b"http://127.0.0.1", 403),
        (b"http://localhost:8672", 403),
        (b"https://127.0.0.1:8672", 200),
        (b"null", 403),
        (b"", 403),
        (b"http://evil.example", 403),
        (b"https://ops.example", 200),
    ],
)
def test_pages_of_our_own_origin_and_configured_ones_may_ask(origin: bytes, wanted: int) -> None:
    guard = Guard(origins=("https://ops.example",))
    for method in ("GET", "POST"):
        assert status(guard.judge(scope(method, origin=origin, content_type=JSON))) == wanted


def test_one_bad_origin_among_several_is_enough() -> None:
    found = scope(origin=b"http://127.0.0.1:8672")
    found["headers"].append((b"origin", b"http://evil.example"))
    assert status(Guard().judge(found)) == 403


@pytest.mark.parametrize(
    ("host", "server", "wanted"),
    [
        (b"evil.example", "127.0.0.1", 403),
        (b"evil.example", "10.0.0.1", 200),
        (b"localhost:8672", "127.0.0.1", 200),
        (b"app.localhost", "::1", 200),
        (b"[::1]:8672", "::1", 200),
        (b"ops.example", "127.0.0.1", 200),
        (b"@localhost", "127.0.0.1", 200),
        (b"localhost@evil.example", "127.0.0.1", 403),
        (b"127.0.0.1:x", "127.0.0.1", 403),
    ],
)
def test_a_name_that_was_pointed_at_this_machine_is_nobodys(host: bytes, server: str, wanted: int) -> None:
    assert status(Guard(origins=("https://ops.example",)).judge(scope(server=server, host=host))) == wanted


def test_any_origin_is_any_origin() -> None:
    guard = Guard(origins=("*",))
    assert guard.judge(scope("DELETE", host=b"evil.example", origin=b"null")) is None
