"""A relay between clients and a broker that counts the frames it passes, by kind and direction."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from broker.client.url import parse

FLOW, TRANSFER = 0x13, 0x14
CHUNK = 1 << 16


class Frames:
    """Counts by performative's code of what the broker said, and of what clients said."""

    def __init__(self) -> None:
        self.by_broker: Counter[int] = Counter()
        self.by_clients: Counter[int] = Counter()


class Reader:
    """Frames of one direction of one connection, from pieces of any size."""

    def __init__(self, counts: Counter[int]) -> None:
        self.counts = counts
        self.kept = b""

    def feed(self, data: bytes) -> None:
        """Count the frames that are whole now."""
        data = self.kept + data
        at = 0
        while len(data) - at >= 8:
            if data[at : at + 4] == b"AMQP":
                at += 8
                continue
            size = int.from_bytes(data[at : at + 4], "big")
            if len(data) - at < size:
                break
            body = at + 4 * data[at + 4]
            if data[at + 5] == 0 and size > 8:
                self.counts[data[body + 2]] += 1  # 0x00, small ulong 0x53, the code
            at += size
        self.kept = data[at:]


@contextmanager
def counted(url: str) -> Iterator[tuple[str, Frames]]:
    """A URL whose connections go to ``url`` and are counted on the way."""
    target, frames = parse(url), Frames()
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                broker = socket.create_connection((target.host, target.port))
                _relay(client, broker, frames.by_clients)
                _relay(broker, client, frames.by_broker)

        threading.Thread(target=accept, daemon=True).start()
        yield f"amqp://127.0.0.1:{server.getsockname()[1]}", frames
        server.shutdown(socket.SHUT_RDWR)


def _relay(source: socket.socket, target: socket.socket, counts: Counter[int]) -> None:
    reader = Reader(counts)

    def pump() -> None:
        while data := _received(source):
            reader.feed(data)
            try:
                target.sendall(data)
            except OSError:
                break
        _shut(target)

    threading.Thread(target=pump, daemon=True).start()


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(CHUNK)
    except OSError:
        return b""


def _shut(target: socket.socket) -> None:
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()
