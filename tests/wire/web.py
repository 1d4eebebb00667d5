"""Clients of AMQP over WebSocket, by a library that is not the broker's own, and one that obeys no rule.

``Bridge`` lets any client of this repository come in over WebSocket; ``WebPeer`` speaks frames made by hand
in it; ``raw`` is a socket behind a handshake, for what no library would send. What the HTTP port serves is
loaded while the first of them waits: that takes as long as a start may.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from tests.wire.conftest import START_SECONDS, RunningBroker
from tests.wire.frames import RawPeer

BINARY, TEXT, CLOSE, PING, PONG = 2, 1, 8, 9, 10


def dial(
    broker: RunningBroker, *protocols: str, path: str = "/", origin: str | None = None
) -> ClientConnection:
    """A WebSocket to the broker that offers these sub-protocols, `amqp` if none; the caller closes it."""
    client = connect(
        f"ws://127.0.0.1:{broker.http_port}{path}",
        subprotocols=[Subprotocol(each) for each in protocols or ("amqp",)],
        origin=None if origin is None else Origin(origin),
        compression=None,
        max_size=None,
        ping_interval=None,
        open_timeout=START_SECONDS,
        proxy=None,
        close_timeout=5,
    )
    # The library means it for `with` only; a peer is one itself.
    return client.__enter__()


class _Stream:
    """A WebSocket as the few methods of a socket that a peer needs."""

    def __init__(self, web: ClientConnection) -> None:
        self.web = web
        self._timeout: float | None = None
        self._rest = b""

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def sendall(self, data: bytes) -> None:
        try:
            self.web.send(data)
        except ConnectionClosed as fault:
            raise ConnectionResetError from fault

    def recv(self, size: int) -> bytes:
        if not self._rest:
            try:
                data = self.web.recv(self._timeout)
            except ConnectionClosed:
                return b""
            assert isinstance(data, bytes), "text came"
            self._rest = data
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def shutdown(self, how: int) -> None:
        self.web.socket.shutdown(how)

    def close(self) -> None:
        self.web.close()


class WebPeer(RawPeer):
    """A peer that speaks AMQP frames in a WebSocket."""

    def __init__(self, broker: RunningBroker) -> None:
        self.web = dial(broker)
        super().__init__(broker.http_port, _Stream(self.web))

    @property
    def close_code(self) -> int | None:
        """What the broker's close frame said."""
        return self.web.protocol.close_code

    def vanish(self) -> None:
        """Close the socket under the WebSocket."""
        with suppress(OSError):
            self.web.socket.shutdown(socket.SHUT_RDWR)
        self.web.socket.close()


class Bridge:
    """A port for clients of TCP behind which every connection is a WebSocket of its own to the broker."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        # Clients of TCP don't wait as long as that.
        broker.settle()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"amqp://127.0.0.1:{self._listening.getsockname()[1]}"
        self.webs: list[ClientConnection] = []
        self._plain: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:
                return
            web = dial(self._broker)
            self._plain.append(plain)
            self.webs.append(web)
            for pump in (self._out, self._back):
                self._threads.append(threading.Thread(target=pump, args=(plain, web)))
                self._threads[-1].start()

    @staticmethod
    def _out(plain: socket.socket, web: ClientConnection) -> None:
        with suppress(OSError, ConnectionClosed):
            while data := plain.recv(65_536):
                web.send(data)
        web.close()

    @staticmethod
    def _back(plain: socket.socket, web: ClientConnection) -> None:
        with suppress(OSError, ConnectionClosed):
            for data in web:
                assert isinstance(data, bytes)
                plain.sendall(data)
        with suppress(OSError):
            plain.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join(10)
        for plain in self._plain:
            with suppress(OSError):
                plain.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(10)
        for plain in self._plain:
            plain.close()


# --- what no library would send


def request(port: int, **changed: str | None) -> bytes:
    """An opening handshake; a header given as None is left out, others replace ours or come on top."""
    headers: dict[str, str | None] = {
        "Host": f"127.0.0.1:{port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "amqp",
    }
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value is not None]
    return f"GET / HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


def answer(broker: RunningBroker, **changed: str | None) -> tuple[int, bytes]:
    """The status and the whole answer to a handshake."""
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=START_SECONDS) as client:
        client.sendall(request(broker.http_port, **changed))
        found = head(client)
        return int(found.split()[1]), found


def head(client: socket.socket) -> bytes:
    """An answer's head, and nothing behind it."""
    found = b""
    while b"\r\n\r\n" not in found and (byte := client.recv(1)):
        found += byte
    return found


def raw(broker: RunningBroker) -> socket.socket:
    """A socket on which the handshake is through."""
    client = socket.create_connection(("127.0.0.1", broker.http_port), timeout=START_SECONDS)
    client.sendall(request(broker.http_port))
    assert head(client).startswith(b"HTTP/1.1 101 ")
    return client


def frame(
    opcode: int, payload: bytes = b"", *, final: bool = True, masked: bool = True, size: int | None = None
) -> bytes:
    """A frame; ``size`` may lie."""
    length = len(payload) if size is None else size
    if length < 126:
        lengths = bytes((length | masked << 7,))
    elif length < 1 << 16:
        lengths = bytes((126 | masked << 7,)) + length.to_bytes(2, "big")
    else:
        lengths = bytes((127 | masked << 7,)) + length.to_bytes(8, "big")
    head_ = bytes((opcode | final << 7,)) + lengths
    if not masked:
        return head_ + payload
    key = os.urandom(4)
    return head_ + key + bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


def read_frame(client: socket.socket) -> tuple[int, bytes]:
    """The opcode and the payload of the next frame; (-1, b"") at the end of the connection."""
    try:
        first = _exactly(client, 2)
        length = first[1]
        assert length < 128, "a server masks nothing"
        if length > 125:
            length = int.from_bytes(_exactly(client, 2 if length == 126 else 8), "big")
        return first[0] & 0x0F, _exactly(client, length)
    except (EOFError, ConnectionResetError):
        return -1, b""


def close_code(client: socket.socket, seconds: float = 10) -> int:
    """The code of the close frame that comes, whatever comes before it; -1 if the connection just ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        opcode, payload = read_frame(client)
        if opcode == CLOSE:
            return int.from_bytes(payload[:2], "big")
        if opcode < 0:
            return -1
    raise AssertionError("no close frame came")


def _exactly(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = client.recv(count - len(found))
        if not data:
            raise EOFError
        found += data
    return found
