"""What a client of WebSocket sends behind the handshake: frames of RFC 6455, into the broker's socket pair.

The first byte is how many sizes of pieces follow it.
"""

from __future__ import annotations

import asyncio
import atexit
import socket

from broker.http.server.websocket import Tunnel, socket_pair
from broker.http.server.websocket_handshake import WebSocketHandshake
from tests.fuzz.mutate import havoc
from tests.fuzz.target import Target, cut, expect, without_errors

WORDS = (
    *(bytes((0x80 | opcode, 0x80)) + b"\0\0\0\0" for opcode in (0, 1, 2, 8, 9, 10, 3)),
    *(b"\x02\x83\1\2\3\4abc", b"\x00\x80\0\0\0\0", b"\x88\x82\0\0\0\0\x03\xe8", b"\x82\xfe\x00\x80\0\0\0\0"),
    *(
        b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
        b"\xc2\x80\0\0\0\0",
        b"\x82\x05plain",
        b"\x89\x85\0\0\0\0hello",
    ),
)
# What the system keeps of one read for either end is more than any input here.
LARGEST = 8192


class Client(asyncio.Transport):
    """The client's side of the tunnel: it keeps what it is told, and takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.told = b""
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.told += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


LOOP = asyncio.new_event_loop()
atexit.register(LOOP.close)


def check(data: bytes) -> None:
    count = data[0] % 8 if data else 0
    sizes, stream = data[1 : 1 + count], data[1 + count :]
    with without_errors():
        whole = LOOP.run_until_complete(_sent(stream, ()))
        pieces = LOOP.run_until_complete(_sent(stream, sizes))
    # Of pings that come together only the latest is answered, those before a fault may not be, and which of
    # two faults is seen first is chance.
    same = whole[0] == pieces[0] and bool(whole[1]) == bool(pieces[1])
    expect(same, "in pieces it differs", whole, pieces)


async def _sent(stream: bytes, sizes: bytes | tuple[int, ...]) -> tuple[bytes, bytes]:
    """What the broker got, and the last word to the client."""
    ours, brokers = socket_pair()
    tunnels: set[Tunnel] = set()
    tunnel = Tunnel(ours, WebSocketHandshake(lambda *_: None), tunnels)
    client = Client()
    got = b""
    with brokers:
        tunnel.open(client, b"")
        for piece in cut(stream, sizes):
            buffer = tunnel.get_buffer(len(piece))
            buffer[: len(piece)] = piece
            tunnel.buffer_updated(len(piece))
            got += _read(brokers)
            if client.closing:
                break
        got += _read(brokers)
        expect(len(tunnel._unsent) <= len(stream), "more waits than was sent")
        tunnel.connection_lost(None)
        expect(not tunnels, "a tunnel is left")
        expect(ours.fileno() < 0, "a socket is left")
    return got, _last_word(client.told)


def _last_word(told: bytes) -> bytes:
    """The close frame, behind any pongs; empty if there was none."""
    while told[:1] == b"\x8a":
        told = told[2 + told[1] :]
    expect(told == b"" or told[0] == 0x88, "neither a pong nor a close", told)
    expect(len(told) in (0, 2 + (told[1] if told else 0)), "something behind the close", told)
    return told


def _read(sock: socket.socket) -> bytes:
    try:
        return sock.recv(LARGEST)
    except BlockingIOError:
        return b""


TARGET = Target(
    "websocket",
    check,
    ("http/server/websocket.py",),
    WORDS,
    lambda data, random: havoc(data, random, WORDS),
    LARGEST,
    3000,
)
