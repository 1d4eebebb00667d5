"""What the HTTP port answers to plain requests: `/metrics`, `/healthz`, `/readyz`, `/api/v1/...`.

What a page shows is asked of the reactor's thread and rendered in a thread of its own, so that neither
the reactor nor the clients of WebSocket wait for a watcher.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from email.utils import formatdate
from functools import partial
from typing import Any, TypeVar, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.errors import NotFoundError, OperatorError
from broker.http import metrics, server
from broker.manage.survey import Surveyed

log = logging.getLogger("sluice.http")

PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"
NOT_FOUND = "not found; there are /metrics, /healthz, /readyz and /api/v1/events, why, deadlocks"
# Events of one answer, unless it is asked for another number of them; the broker keeps no more than the last.
EVENTS, MOST_EVENTS = 100, 1000
# Of a long answer, given to the socket at once.
PART_BYTES = 256 * 1024

Answer = TypeVar("Answer")
# Status, content type and body, the body of a long answer in parts.
Content = tuple[int, str, bytes | list[bytes]]
Page = Callable[[Request], Content]
Events = Callable[[int, bool], list[bytes]]
Why = Callable[[str], Sequence[object]]
Endpoint = Callable[[Request], Awaitable[Response]]


def application(
    ask: server.Ask,
    survey: Callable[[], Surveyed],
    readiness: Callable[[], str],
    events: Events | None = None,
    why: Why | None = None,
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The ASGI application; without a ``why`` nobody is told why a link waits."""
    pages = _Pages(ask, survey, readiness, events, why)
    threads = _Threads()
    routes = [
        Route("/metrics", _endpoint(pages.metrics, threads)),
        Route("/healthz", _endpoint(pages.health, threads)),
        Route("/readyz", _endpoint(pages.readiness, threads)),
        Route("/api/v1/events", _endpoint(pages.events, threads)),
        Route("/api/v1/deadlocks", _endpoint(pages.deadlocks, threads)),
    ]
    if why is not None:
        told = _endpoint(pages.why, threads)
        routes += [Route("/api/v1/why", told), Route("/api/v1/why/{address:path}", told)]
    found = Starlette(routes=routes, exception_handlers={HTTPException: _refusal, Exception: _fault})
    found.router.redirect_slashes = False
    return _Guarded(found)


class _Pages:
    """Status, content type and body of each page."""

    def __init__(
        self,
        ask: server.Ask,
        survey: Callable[[], Surveyed],
        readiness: Callable[[], str],
        events: Events | None,
        why: Why | None,
    ) -> None:
        self._events = events
        self._why = why
        self._ask = ask
        self._survey = survey
        self._readiness_of = readiness

    def metrics(self, _request: Request) -> Content:
        return 200, metrics.CONTENT_TYPE, metrics.render(self._survey())

    def health(self, _request: Request) -> Content:
        """Alive is a broker whose loop turns."""
        self._ask(lambda: None)
        return 200, PLAIN, b"ok\n"

    def readiness(self, _request: Request) -> Content:
        """Ready is a broker that takes messages in; if it doesn't, the answer says why."""
        reason = self._ask(self._readiness_of)
        if not reason:
            return 200, PLAIN, b"ready\n"
        return 503, PLAIN, f"not ready: {reason}\n".encode()

    def events(self, request: Request) -> Content:
        """The last events as a JSON array, oldest first; samples unless `samples=false`."""
        text = request.query_params.get("count", str(EVENTS))
        if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST_EVENTS:
            return 400, PLAIN, f"count must be a whole number from 1 to {MOST_EVENTS}\n".encode()
        try:
            samples = request.query_params.get("samples") != "false"
            lines = self._events(int(text), samples) if self._events is not None else []
        except OperatorError as fault:
            return 404, PLAIN, f"{fault}\n".encode()
        return 200, JSON, b"[" + b",\n".join(line.rstrip() for line in lines) + b"]\n"

    def deadlocks(self, _request: Request) -> Content:
        """Those that stand now."""
        found = self._survey().broker.deadlocks
        return _json(200, {"deadlocks": [asdict(each) for each in found]})

    def why(self, request: Request) -> Content:
        """One answer for each link that waits: at an address, or at all of them."""
        why, address = self._why, request.path_params.get("address", "")
        try:
            answers = [] if why is None else self._ask(lambda: why(address))
        except NotFoundError as refusal:
            return _json(404, {"error": str(refusal)})
        return _json(200, {"answers": [asdict(cast("Any", each)) for each in answers]})


def _json(status: int, content: object) -> Content:
    return status, JSON, json.dumps(content, ensure_ascii=False).encode() + b"\n"


class _Threads:
    """One short-lived thread for each answer under way; no stop waits for them."""

    def __init__(self) -> None:
        self._busy = 0

    async def run(self, function: Callable[[], Answer]) -> Answer:
        """The function's result; TimeoutError where as many are busy as there may be clients."""
        if self._busy >= server.MOST_CLIENTS:
            raise TimeoutError("too many answers are under way")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()

        def work() -> None:
            try:
                result = function()
            except Exception as fault:  # noqa: BLE001 - it is raised again where it is awaited
                settle = partial(future.set_exception, fault)
            else:
                settle = partial(future.set_result, result)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._leave, future, settle)

        self._busy += 1
        threading.Thread(target=work, name="http-answer", daemon=True).start()
        return await future

    def _leave(self, future: asyncio.Future[Answer], settle: Callable[[], None]) -> None:
        self._busy -= 1
        if not future.done():  # who awaited it may have been cut off
            settle()


def _endpoint(page: Page, threads: _Threads) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            status, content_type, body = await threads.run(partial(page, request))
        except TimeoutError:
            return Response(b"the broker's loop does not answer\n", 503, media_type=PLAIN)
        if isinstance(body, list):
            return StreamingResponse(_parts(body), status, media_type=content_type)
        return Response(body, status, media_type=content_type)

    return answer


async def _parts(body: list[bytes]) -> AsyncIterator[bytes]:
    """Others have their turn, and the client its time, between two of them."""
    gathered = bytearray()
    for each in body:
        gathered += each
        if len(gathered) >= PART_BYTES:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


async def _refusal(_request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    text = {404: NOT_FOUND, 405: "method not allowed"}.get(fault.status_code, fault.detail)
    # The router names the methods in any order.
    headers = {name: ", ".join(sorted(value.split(", "))) for name, value in (fault.headers or {}).items()}
    return Response(f"{text}\n", fault.status_code, headers, media_type=PLAIN)


async def _fault(_request: Request, _fault: Exception) -> Response:
    return Response(b"internal error\n", 500, media_type=PLAIN)


class _Guarded:
    """Headers every answer has; a fault of ours is logged here and no further."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [(name.title(), value) for name, value in message["headers"]] + common()
            await send(message)

        try:
            await self._inner(scope, receive, finish)
        except Exception:
            log.exception("HTTP %s failed", scope.get("path"))


def common() -> list[tuple[bytes, bytes]]:
    """The headers of every answer, refusals included."""
    return [
        (b"Date", formatdate(usegmt=True).encode()),
        (b"Cache-Control", b"no-store"),
        (b"X-Content-Type-Options", b"nosniff"),
    ]
