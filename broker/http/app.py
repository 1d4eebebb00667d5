"""What the HTTP port answers to plain requests: `/metrics`, `/healthz`, `/readyz`, the console and its API.

What a page shows is asked of the reactor's thread and rendered in a thread of its own, so that neither
the reactor nor the clients of WebSocket wait for a watcher.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.http import files, metrics, server
from broker.http.api import application as api
from broker.http.api.desk import Desk
from broker.http.api.guard import Guard
from broker.http.threads import Threads
from broker.loggers import SOMEBODY, about
from broker.manage.survey import Surveyed

log = logging.getLogger("sluice.http")

PLAIN = "text/plain; charset=utf-8"
NOT_FOUND = "not found; there are /metrics, /healthz, /readyz and /api/v1/..."
# Of a long answer, given to the socket at once.
PART_BYTES = 256 * 1024

# Status, content type and body, the body of a long answer in parts.
Content = tuple[int, str, bytes | list[bytes]]
Page = Callable[[Request], Content]
Endpoint = Callable[[Request], Awaitable[Response]]


def application(
    ask: server.Ask,
    survey: Callable[[], Surveyed],
    readiness: Callable[[], str],
    operate: server.Operate | None = None,
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The ASGI application; without ``operate`` there is no API."""
    pages = _Pages(ask, survey, readiness)
    threads = Threads()
    routes = [
        Route("/metrics", _endpoint(pages.metrics, threads)),
        Route("/healthz", _endpoint(pages.health, threads)),
        Route("/readyz", _endpoint(pages.readiness, threads)),
    ]
    found = Starlette(routes=routes, exception_handlers={HTTPException: _refusal, Exception: _fault})
    found.router.redirect_slashes = False
    if operate is None:
        return _Guarded(found)
    found.router.routes += files.routes()
    desk = Desk(operate.model, ask, operate.ask_in_parts, threads)
    return _Guarded(_Fork(found, api.application(desk, Guard(operate.refusal, operate.origins))))


class _Pages:
    """Status, content type and body of each page."""

    def __init__(
        self,
        ask: server.Ask,
        survey: Callable[[], Surveyed],
        readiness: Callable[[], str],
    ) -> None:
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


def _endpoint(page: Page, threads: Threads) -> Endpoint:
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


class _Fork:
    """The API for what lies beneath its prefix, the pages for everything else."""

    def __init__(self, pages: ASGIApp, beneath: ASGIApp) -> None:
        self._pages = pages
        self._beneath = beneath

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        mine = scope["path"].startswith(f"{api.PREFIX}/")
        await (self._beneath if mine else self._pages)(scope, receive, send)


class _Guarded:
    """Headers every answer has; a fault of ours is logged here and no further."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = [(name.title(), value) for name, value in message["headers"]]
                names = {name for name, _ in said}
                message["headers"] = said + [each for each in common() if each[0] not in names]
            await send(message)

        try:
            await self._inner(scope, receive, finish)
        except Exception:
            log.exception("HTTP %s failed", scope.get("path"), extra=about(SOMEBODY))


def common() -> list[tuple[bytes, bytes]]:
    """The headers of every answer, refusals included."""
    return [
        (b"Date", formatdate(usegmt=True).encode()),
        (b"Cache-Control", b"no-store"),
        (b"X-Content-Type-Options", b"nosniff"),
        (b"X-Frame-Options", b"DENY"),
        (b"Referrer-Policy", b"no-referrer"),
        (b"Cross-Origin-Resource-Policy", b"same-origin"),
    ]
