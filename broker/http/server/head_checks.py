"""Heads of requests that no well-meaning client sends: refused before anything is read into them.

What two readers may read differently is how requests are smuggled past a proxy (RFC 9112 §11.2). The parser
(h11) refuses most of it; here stands what it lets through.
"""

from __future__ import annotations

from starlette.types import Scope

from broker.http.server import limits

MOST_HEADERS = 100
BODY_HEADERS = (b"content-length", b"transfer-encoding")


def fault(scope: Scope) -> tuple[int, str] | None:
    """The status and the reason if a request is refused for its head; the connection ends with it."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(a) + len(b) + 4 for a, b in headers)
    if len(headers) > MOST_HEADERS or size > limits.LARGEST_HEAD:
        return 431, "the head is too large"
    if scope["http_version"] not in ("1.0", "1.1"):
        return 505, "version 1.1 is spoken here, and 1.0"
    if not scope["raw_path"].startswith(b"/"):
        return 400, "a path begins with a slash"
    names = [name for name, _ in headers if name in BODY_HEADERS]
    if len(set(names)) > 1:
        return 400, "either Content-Length or Transfer-Encoding"
    if b"transfer-encoding" in names and scope["http_version"] != "1.1":
        return 400, "no Transfer-Encoding before HTTP/1.1"
    return None


def has_body(scope: Scope) -> bool:
    """Whether a body follows the head."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return any(name in BODY_HEADERS and value.strip() != b"0" for name, value in headers)
