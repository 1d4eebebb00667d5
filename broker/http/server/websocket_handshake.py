"""Who may come in over WebSocket: the opening handshake (RFC 6455 §4.2) and where a page may come from.

Pure: a request's headers in, a verdict out. The sockets are ``site``'s and ``tunnel``'s.
"""

from __future__ import annotations

import binascii
import socket
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

SUBPROTOCOL = "amqp"
ANY_ORIGIN = "*"
VERSION = b"13"
# RFC 6455 §1.3
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_DEFAULT_PORTS = {"http": 80, "https": 443}

Headers = Sequence[tuple[bytes, bytes]]


class Adopt(Protocol):
    """Gives a socket to the broker's loop as one more AMQP connection, which owns it from now on.

    ``user``: whom the client's certificate names, empty for nobody. On that loop's thread ``admitted`` is
    called with whether there was room, and ``gone`` once it is closed.
    """

    def __call__(
        self,
        sock: socket.socket,
        address: str,
        user: str,
        admitted: Callable[[bool], None],
        gone: Callable[[], None],
        /,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class HandshakeRefusal:
    """An answer that is no WebSocket."""

    status: int
    text: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(slots=True)
class WebSocketHandshake:
    """Where AMQP clients come in over WebSocket. ``leaving``: the broker is about to stop."""

    adopt: Adopt
    origins: tuple[str, ...] = ()
    largest_frame_bytes: int = 16 << 20
    leaving: bool = False

    def judge(
        self, method: bytes, version: bytes, headers: Headers, own_address: str
    ) -> HandshakeRefusal | Headers:
        """Why a request to become a WebSocket is refused, or the headers that answer it.

        Names of ``headers`` are lower case; ``own_address`` is the one the client connected to.
        """
        if method != b"GET" or version != b"1.1":
            return HandshakeRefusal(400, "a WebSocket begins with GET in HTTP/1.1")
        if _values(headers, b"sec-websocket-version") != [VERSION]:
            return HandshakeRefusal(
                426, "WebSocket version 13 is needed", ((b"Sec-WebSocket-Version", VERSION),)
            )
        key = _values(headers, b"sec-websocket-key")
        if len(key) != 1 or not _is_key(key[0]):
            return HandshakeRefusal(400, "a Sec-WebSocket-Key of 16 bytes is needed")
        # Before anything is said about what is spoken here.
        host = b"".join(_values(headers, b"host")).decode("latin-1")
        for origin in _values(headers, b"origin"):
            if not is_welcome(origin.decode("latin-1"), host, own_address, self.origins):
                return HandshakeRefusal(403, "this origin may not connect (websocket_origins)")
        offered = b",".join(_values(headers, b"sec-websocket-protocol")).decode("latin-1")
        if SUBPROTOCOL not in (each.strip() for each in offered.split(",")):
            return HandshakeRefusal(400, "the sub-protocol 'amqp' is spoken here, and no other")
        return [
            (b"Upgrade", b"websocket"),
            (b"Connection", b"Upgrade"),
            (b"Sec-WebSocket-Accept", b64encode(sha1(key[0] + _GUID, usedforsecurity=False).digest())),
            (b"Sec-WebSocket-Protocol", SUBPROTOCOL.encode()),
        ]


def is_welcome(origin: str, host: str, own_address: str, origins: Sequence[str]) -> bool:
    """Whether a page of that origin may speak for its user: one of ours, or one that is configured.

    A page whose host is a name and which yet reached us on a loopback address was either sent by a
    proxy, which is configured, or has had its name pointed here by whoever owns it (DNS rebinding).
    """
    if ANY_ORIGIN in origins or origin in origins:
        return True
    page = _split(origin)
    if page is None or _place(page) != _place_of_host(host, page.scheme):
        return False
    return not _is_loopback(own_address) or _is_loopback(page.hostname or "")


def is_host_welcome(host: str, own_address: str, origins: Sequence[str]) -> bool:
    """Whether a request for this Host may come in on a loopback address: pages say no Origin where they
    only read from what they take for their own host.
    """
    if not _is_loopback(own_address) or ANY_ORIGIN in origins:
        return True
    page = _split(f"http://{host}")
    if page is None:
        return False
    known = {found.hostname for found in map(_split, origins) if found is not None}
    return _is_loopback(page.hostname or "") or page.hostname in known


def is_of_this_machine(host: str) -> bool:
    """Whether a Host header names a loopback address, or `localhost`."""
    page = _split(f"http://{host}")
    return page is not None and _is_loopback(page.hostname or "")


def _values(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name == wanted]


def _is_key(key: bytes) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def _split(url: str) -> SplitResult | None:
    """A web page's origin; None for `null`, for files and for what is no URL."""
    try:
        found = urlsplit(url)
        _ = found.port
    except ValueError:
        return None
    return found if found.scheme in _DEFAULT_PORTS and found.hostname else None


def _place(page: SplitResult) -> tuple[str | None, int]:
    return page.hostname, page.port or _DEFAULT_PORTS[page.scheme]


def _place_of_host(host: str, scheme: str) -> tuple[str | None, int] | None:
    """A Host header as the page's scheme reads it: a proxy may have taken TLS off."""
    found = _split(f"{scheme}://{host}")
    return None if found is None else _place(found)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
