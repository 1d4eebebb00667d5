"""Who may ask and who may change something, before any request reaches its route.

Where there are no users, whoever reaches the port is an operator: so it is only on a loopback address that
writes are taken, unless a setting says otherwise. And a browser runs pages of strangers: none of them may
speak for its user, whom the browser's cookies and remembered passwords make known here.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope

from broker.http.server.websocket_handshake import is_host_welcome, is_welcome

# The paths of the API begin with it.
PREFIX = "/api/v1"
READS = ("GET", "HEAD", "OPTIONS")
WITH_BODY = ("POST", "PUT", "PATCH")
JSON = b"application/json"


@dataclass(frozen=True, slots=True)
class Guard:
    """``refusal`` is why all writes are refused, if they are; ``origins`` of pages that may ask."""

    refusal: str = ""
    origins: tuple[str, ...] = ()

    def judge(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the reason if a request is refused."""
        method = scope["method"]
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        host = _first(headers, b"host").decode("latin-1")
        own = scope["server"][0] if scope.get("server") else ""
        if host and not is_host_welcome(host, own, self.origins):
            return 403, f"this host name is not the broker's: {host!a}"
        for name, origin in headers:
            if name == b"origin" and not is_welcome(origin.decode("latin-1"), host, own, self.origins):
                return 403, "this origin may not ask"
        if _is_drawn_in(headers):
            return 403, "a page of another site may not ask"
        if method in READS:
            return None
        if self.refusal:
            return 403, self.refusal
        sent = _first(headers, b"content-length") not in (b"", b"0") or _first(headers, b"transfer-encoding")
        if (sent or method in WITH_BODY) and not _is_json(_first(headers, b"content-type")):
            return 415, "writes take JSON: say Content-Type: application/json"
        return None


def _is_drawn_in(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a browser says that another site's page loads this as a part of itself (Fetch Metadata): such
    a page can't read it, and a request for data says an Origin besides.
    """
    if _first(headers, b"sec-fetch-site") not in (b"cross-site", b"same-site") or _first(headers, b"origin"):
        return False
    return _first(headers, b"sec-fetch-mode") != b"navigate"


def _first(headers: list[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    return next((value for name, value in headers if name == wanted), b"")


def _is_json(value: bytes) -> bool:
    return value.partition(b";")[0].strip().lower() == JSON
