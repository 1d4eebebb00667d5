"""HTTP between cells: one request a connection, on the Unix sockets at which cells hear each other.

A cell that works on an answer says so once a second (102 Processing), so that one that is stopped, or gone,
is told from one that is busy. All of it is on the HTTP server's thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import h11

from broker.http.cells.call import (
    MOST_BYTES,
    SILENT_S,
    CellAnswer,
    CellCall,
    CellSilentError,
    LateCallError,
    body_of,
    read,
    written,
)
from broker.http.server.selector import ThrottledSelector

log = logging.getLogger("sluice.cells")

# How often a cell says that it works on an answer.
SIGN_S = 1.0
# How long an answer may take in all: as long as the reactor's own longest question.
LONGEST_S = 75.0
# A silent cell is asked again so often; meanwhile nobody waits for it.
PROBE_S = 1.0
MOST_HEAD = 64 << 10
MOST_REQUEST = 4 << 20
CHUNK = 64 << 10


class Dial(Protocol):
    """Connects to a cell for one request over HTTP, without waiting; OSError where it can't be reached."""

    def __call__(self, cell: int) -> socket.socket: ...


class CellClient:
    """Asks other cells; those that don't answer are left out until they do again.

    Its sockets wait at the ``turnstile``, where there is one, as those of clients do.
    """

    def __init__(self, dial: Dial) -> None:
        self.turnstile: ThrottledSelector | None = None
        self._dial = dial
        self._silent: dict[int, str] = {}
        self._probes: set[asyncio.Task[None]] = set()

    async def ask(self, cell: int, call: CellCall) -> CellAnswer:
        """Return a cell's answer; CellSilentError after 5 s in which it gave no sign, or at once where it has
        given none to a call before.
        """
        if cell in self._silent:
            raise CellSilentError(self._silent[cell])
        try:
            return await self._ask(cell, call)
        except TimeoutError:
            self._leave_out(cell, "it doesn't answer")
            raise CellSilentError("it doesn't answer") from None
        except (OSError, h11.ProtocolError) as fault:
            raise CellSilentError(f"it can't be asked: {_text(fault)}") from fault

    def _leave_out(self, cell: int, reason: str) -> None:
        if cell in self._silent:
            return
        self._silent[cell] = reason
        log.warning("cell %d doesn't answer over HTTP: it is left out until it does", cell)
        task = asyncio.get_running_loop().create_task(self._probe(cell))
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)

    async def _probe(self, cell: int) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            with suppress(TimeoutError, OSError, h11.ProtocolError):
                await self._ask(cell, CellCall("GET", "/healthz"))
                break
        del self._silent[cell]
        log.info("cell %d answers over HTTP again", cell)

    async def _ask(self, cell: int, call: CellCall) -> CellAnswer:
        async with _streams(self._dial(cell), self.turnstile) as (reader, writer):
            async with asyncio.timeout(LONGEST_S):
                return await _asked(reader, writer, call)


@asynccontextmanager
async def _streams(
    sock: socket.socket, turnstile: ThrottledSelector | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Read from and write to a connected socket, which is closed in the end."""
    fd = sock.fileno()
    sock.setblocking(False)
    if turnstile is not None:
        turnstile.bind(fd)
    try:
        reader, writer = await asyncio.open_connection(sock=sock)
    except BaseException:
        if turnstile is not None:
            turnstile.release(fd)
        sock.close()
        raise
    try:
        yield reader, writer
    finally:
        if turnstile is not None:
            turnstile.release(fd)
        writer.close()


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: CellCall) -> CellAnswer:
    conn = h11.Connection(h11.CLIENT, MOST_HEAD)
    body = body_of(call)
    request = h11.Request(method=call.method, target=call.target.encode("latin-1"), headers=written(call))
    for said in (request, h11.Data(data=body), h11.EndOfMessage()):
        writer.write(conn.send(said) or b"")
    async with asyncio.timeout(SILENT_S):
        await writer.drain()
    headers: dict[str, str] = {}
    parts: list[bytes] = []
    status = size = 0
    while True:
        event = await _next(conn, reader)
        if isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size > MOST_BYTES:
                raise OSError("its answer is too large")
            parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return CellAnswer(status, b"".join(parts), headers)
        elif isinstance(event, h11.ConnectionClosed):
            raise OSError("its answer ended too early")


async def _next(conn: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := conn.next_event()) is h11.NEED_DATA:
        async with asyncio.timeout(SILENT_S):
            conn.receive_data(await reader.read(CHUNK))
    return event


async def serve(
    sock: socket.socket,
    answer: Callable[[CellCall], Awaitable[CellAnswer]],
    turnstile: ThrottledSelector | None = None,
) -> None:
    """Answer the one request that another cell makes on a connected socket, and close it."""
    try:
        async with _streams(sock, turnstile) as (reader, writer):
            await _served(reader, writer, answer)
    except LateCallError:
        log.debug("another cell's request came too late")
    except (OSError, TimeoutError, ValueError, KeyError, TypeError, h11.ProtocolError) as fault:
        log.warning("another cell's request wasn't answered: %s", _text(fault))
    except Exception:
        log.exception("another cell's request wasn't answered")


async def _served(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: Callable[[CellCall], Awaitable[CellAnswer]],
) -> None:
    conn = h11.Connection(h11.SERVER, MOST_HEAD)
    request, parts, size = None, [], 0
    while True:
        event = await _next(conn, reader)
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size > MOST_REQUEST:
                raise ValueError("it is too large")
            parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            break
        elif isinstance(event, h11.ConnectionClosed):
            return
    assert request is not None
    method, target = request.method.decode(), request.target.decode("latin-1")
    call = read(method, target, list(request.headers), b"".join(parts))
    told = await _signing(conn, writer, answer(call))
    headers = [(name.encode(), value.encode("latin-1")) for name, value in told.headers.items()]
    kept = [each for each in headers if each[0] not in (b"content-length", b"transfer-encoding")]
    length = (b"content-length", str(len(told.body)).encode())
    writer.write(conn.send(h11.Response(status_code=told.status, headers=[*kept, length])) or b"")
    for begin in range(0, len(told.body), CHUNK):
        writer.write(conn.send(h11.Data(data=told.body[begin : begin + CHUNK])) or b"")
        async with asyncio.timeout(SILENT_S):
            await writer.drain()
    writer.write(conn.send(h11.EndOfMessage()) or b"")
    async with asyncio.timeout(SILENT_S):
        await writer.drain()


async def _signing(
    conn: h11.Connection, writer: asyncio.StreamWriter, working: Awaitable[CellAnswer]
) -> CellAnswer:
    """Wait for an answer, and say meanwhile that it is being worked on."""
    task = asyncio.ensure_future(working)
    try:
        while not (await asyncio.wait((task,), timeout=SIGN_S))[0]:
            writer.write(conn.send(h11.InformationalResponse(status_code=102, headers=[])) or b"")
        return task.result()
    finally:
        task.cancel()


def _text(fault: BaseException) -> str:
    return getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
