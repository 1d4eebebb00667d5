"""A TCP proxy that hands on every byte so many milliseconds late, in order, each way.

``python -m bench.delay PORT TARGET_PORT MILLISECONDS``, in a process of its own: a round trip through it
takes twice that. It prints ``ready`` when it listens, and reads on while it holds bytes back: it delays
and doesn't throttle.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from bench.contenders import BenchError, free_port

CHUNK = 1 << 18


@contextmanager
def delayed(target_port: int, delay_ms: float) -> Iterator[int]:
    """The port of a proxy to ``target_port`` on this machine, which runs while the block does."""
    port = free_port()
    command = [sys.executable, "-m", "bench.delay", str(port), str(target_port), str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise BenchError("the delaying proxy did not start")
            yield port
        finally:
            process.terminate()


class Way(asyncio.Protocol):
    """One socket; what comes in is written to ``other`` a delay later."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.other: Way | None = None
        self.transport: asyncio.Transport | None = None
        self.held: deque[tuple[float, bytes]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self.delay_s
        self.held.append((due_s, data))
        if len(self.held) == 1:
            loop.call_at(due_s, self._release)

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self.delay_s, self._end)

    def _release(self) -> None:
        loop = asyncio.get_running_loop()
        assert self.other is not None
        transport = self.other.transport
        while self.held and self.held[0][0] <= loop.time():
            data = self.held.popleft()[1]
            if transport is not None and not transport.is_closing():
                transport.write(data)
        if self.held:
            loop.call_at(self.held[0][0], self._release)

    def _end(self) -> None:
        assert self.other is not None
        if self.other.transport is not None:
            self.other.transport.close()


class Front(Way):
    """The side that was connected to; it connects on."""

    def __init__(self, target_port: int, delay_s: float) -> None:
        super().__init__(delay_s)
        self.target_port = target_port
        self.other = Way(delay_s)
        self.other.other = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self.task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        other = self.other
        assert other is not None
        assert self.transport is not None
        await asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", self.target_port)
        self.transport.resume_reading()


async def serve(port: int, target_port: int, delay_ms: float) -> None:
    """Until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Front(target_port, delay_ms / 1000), "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
