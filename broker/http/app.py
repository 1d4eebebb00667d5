"""What the HTTP port answers to plain requests: `/metrics`, `/healthz`, `/readyz`, the console and its API.

What a page shows is asked of the reactor's thread and rendered in a thread of its own, so that neither
the reactor nor the clients of WebSocket wait for a watcher.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.errors import ForbiddenError
from broker.http.api.guard import PREFIX, READS, Guard
from broker.http.metrics import metrics
from broker.http.server import files, head_checks, limits
from broker.http.server.authenticator import CALLER, NOBODY, HttpAuthenticator, Rejected, address_of, peer_of
from broker.http.server.calls import Ask
from broker.http.server.cpu_share import CpuShare
from broker.http.server.deferred_app import DeferredApp
from broker.http.server.request_queue import RequestQueue
from broker.http.server.request_rate import RequestRate
from broker.http.server.stats import HttpCounts
from broker.http.server.threads import Threads
from broker.http.server.types import Operate
from broker.http.server.websocket_handshake import is_of_this_machine
from broker.loggers import SOMEBODY, about
from broker.manage.authorized import AuthorizedModel
from broker.manage.model import Model
from broker.manage.survey import SurveyResult

if TYPE_CHECKING:
    from broker.http.cells.face import CellsFace

log = logging.getLogger("sluice.http")
access_log = logging.getLogger("sluice.http.access")

PLAIN = "text/plain; charset=utf-8"
METRICS = "/metrics"
HEALTH, READINESS = URGENT = "/healthz", "/readyz"
# An answer may take milliseconds in which messages wait for the interpreter's lock.
REQUESTS_BURST_S = 3
# Of a path, in a line of the access log.
MOST_LOGGED = 300
NOT_FOUND = "not found; there are /metrics, /healthz, /readyz and /api/v1/..."
# Of a long answer, given to the socket at once.
PART_BYTES = 256 * 1024

# Status, content type and body, the body of a long answer in parts.
Content = tuple[int, str, bytes | list[bytes]]
Page = Callable[[Request], Content]
Endpoint = Callable[[Request], Awaitable[Response]]


def application(
    ask: Ask,
    survey: Callable[[], SurveyResult],
    readiness: Callable[[], str],
    operate: Operate | None = None,
    tally: HttpCounts | None = None,
    share: CpuShare | None = None,
    face: CellsFace | None = None,
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The ASGI application; without ``operate`` there is no API.

    With a ``face`` it speaks for all cells of this machine, and the face is given what speaks for this one.
    """
    tally, shared = tally or HttpCounts(), share or CpuShare()
    tally.spent_ns = lambda: shared.spent_ns
    pages = _Pages(ask, survey, readiness, tally, None if face is None else face.own)
    threads = Threads(shared)
    routes = [
        Route(METRICS, _endpoint(pages.metrics, threads)),
        Route(HEALTH, _endpoint(pages.health, threads, urgent=True)),
        Route(READINESS, _endpoint(pages.readiness, threads, urgent=True)),
    ]
    found = Starlette(routes=routes, exception_handlers={HTTPException: _refusal, Exception: _fault})
    found.router.redirect_slashes = False
    if operate is None:
        return _Guarded(found, tally, RequestRate(0), RequestQueue(shared))
    found.router.routes += files.routes()
    if face is not None:
        return _of_cells(found, face, operate, ask, threads, tally, shared)
    reception = HttpAuthenticator(operate.access, operate.model.authority, ask, threads)
    beneath = DeferredApp(partial(_api, operate, ask, threads, reception))
    tally.sessions = lambda: len(reception.sessions)
    pace = RequestRate(operate.access.rates.requests, REQUESTS_BURST_S)
    return _Guarded(
        _Fork(_Measured(found, reception, operate.model), beneath), tally, pace, RequestQueue(shared)
    )


def _of_cells(
    own: Starlette,
    face: CellsFace,
    operate: Operate,
    ask: Ask,
    threads: Threads,
    tally: HttpCounts,
    shared: CpuShare,
) -> ASGIApp:
    """Return what speaks for all cells; ``own`` has the pages of this one."""
    from broker.http.cells.logins import CellLogins, answering
    from broker.http.cells.pages import CellsPages

    reception = HttpAuthenticator(
        operate.access, operate.model.authority, ask, threads, elsewhere=CellLogins(face)
    )
    face.on_session = answering(reception.find_login, reception.sessions.end)
    beneath = DeferredApp(partial(_api, operate, ask, threads, reception, face))
    face.local = _Fork(own, beneath)
    pages = CellsPages(face, threads, _parts)
    routes = [
        Route(METRICS, pages.metrics),
        Route(HEALTH, pages.state),
        Route(READINESS, pages.state),
        *files.routes(),
    ]
    whole = Starlette(routes=routes, exception_handlers={HTTPException: _refusal, Exception: _fault})
    whole.router.redirect_slashes = False
    tally.sessions = lambda: len(reception.sessions)
    pace = RequestRate(operate.access.rates.requests, REQUESTS_BURST_S)
    public = _Fork(_Measured(whole, reception, operate.model), beneath)
    return _Guarded(public, tally, pace, RequestQueue(shared))


def _api(
    operate: Operate, ask: Ask, threads: Threads, reception: HttpAuthenticator, face: CellsFace | None = None
) -> ASGIApp:
    """Return the API; FastAPI and its models take as long to load as the rest of a broker's start."""
    from broker.http.api import application as api
    from broker.http.api.context import RequestContext

    context = RequestContext(operate.model, ask, operate.ask_in_parts, threads)
    guard = Guard(origins=operate.origins)
    if face is None:
        return api.application(context, guard, reception)
    from broker.http.cells.api import CellsApi

    return api.application(context, guard, reception, lambda here: CellsApi(here, face, threads))


class _Pages:
    """Status, content type and body of each page."""

    def __init__(
        self,
        ask: Ask,
        survey: Callable[[], SurveyResult],
        readiness: Callable[[], str],
        tally: HttpCounts,
        cell: int | None = None,
    ) -> None:
        # The number of this cell, where it is one of several.
        self._cell = cell
        self._tally = tally
        self._ask = ask
        self._survey = survey
        self._readiness_of = readiness

    def metrics(self, _request: Request) -> Content:
        parts = [*metrics.render(self._survey()), self._tally.exposed()]
        if self._cell is not None:
            from broker.http.cells.pages import marked

            parts = list(marked(parts, self._cell))
        return 200, metrics.CONTENT_TYPE, parts

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


def _endpoint(page: Page, threads: Threads, *, urgent: bool = False) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            status, content_type, body = await threads.run(partial(page, request), urgent=urgent)
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
        mine = scope["path"].startswith(f"{PREFIX}/")
        await (self._beneath if mine else self._pages)(scope, receive, send)


class _Measured:
    """The pages; before the metrics stands the reception, where settings close it."""

    def __init__(self, pages: ASGIApp, reception: HttpAuthenticator, model: Model) -> None:
        self._pages = pages
        self._model = model
        self._reception = reception

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == METRICS and not self._reception.access.is_open_to_metrics():
            turned = await self._turned(scope)
            if turned is not None:
                headers = dict(turned.headers)
                answer = Response(f"{turned.reason}\n", turned.status, headers, media_type=PLAIN)
                await answer(scope, receive, send)
                return
        await self._pages(scope, receive, send)

    async def _turned(self, scope: Scope) -> Rejected | None:
        """Why whoever asks may not see the broker as a whole."""
        try:
            caller = await self._reception.enter(scope)
        except TimeoutError:
            return Rejected(503, "too much is under way")
        if isinstance(caller, Rejected):
            return caller
        scope[CALLER] = caller
        try:
            AuthorizedModel(self._model, caller.identity).see_broker()
        except ForbiddenError as fault:
            return Rejected(403, str(fault))
        return None


class _Guarded:
    """Headers every answer has; a fault of ours is logged here and no further."""

    def __init__(self, inner: ASGIApp, tally: HttpCounts, pace: RequestRate, turn: RequestQueue) -> None:
        self._inner = inner
        self._tally = tally
        self._pace = pace
        self._turn = turn
        # Requests that are being answered.
        self._busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = [(name.title(), value) for name, value in message["headers"]]
                names = {name for name, _ in said}
                more = [*common(), *_pinned(scope)]
                message["headers"] = said + [each for each in more if each[0] not in names]
                self._tally.answers[message["status"]] += 1
                _note(scope, message["status"])
            await send(message)

        fault = head_checks.fault(scope)
        if fault is None and head_checks.has_body(scope) and not scope["path"].startswith(f"{PREFIX}/"):
            fault = 413, "no body is taken here"
        # Who asks too often waits; what it sends meanwhile stays in its socket.
        while wait_ns := self._pace.wait_ns(address_of(scope), time.monotonic_ns()):
            self._tally.held_up += 1
            await asyncio.sleep(wait_ns / 1e9)
        if fault is None and self._busy >= limits.MOST_CLIENTS and scope["path"] not in URGENT:
            fault = 503, "too many requests are being answered"
        self._busy += 1
        try:
            if scope["path"] not in URGENT:
                await self._turn.passed()
            if fault is None:
                await self._inner(scope, receive, finish)
            else:
                status, text = fault
                headers = {"Connection": "close"} | ({"Retry-After": "1"} if status == 503 else {})
                refused = Response(f"{text}\n", status, headers, media_type=PLAIN)
                await refused(scope, receive, finish)
        except Exception:
            log.exception("HTTP %s failed", scope["raw_path"], extra=about(SOMEBODY))
        finally:
            self._busy -= 1


def _note(scope: Scope, status: int) -> None:
    """One line of the access log: reads are many, and say who did nothing."""
    level = logging.DEBUG if scope["method"] in READS and status < 400 else logging.INFO
    if not access_log.isEnabledFor(level):
        return
    caller = scope.get(CALLER, NOBODY)
    peer, user = peer_of(scope), caller.identity.user
    asked = scope["method"], scope["raw_path"][:MOST_LOGGED].decode("latin-1")
    fields = {"user": user, "by": caller.by, "method": asked[0], "path": asked[1], "status": status}
    access_log.log(level, "HTTP %s %s: %s %s %d", peer, user, *asked, status, extra=about(peer, **fields))


def _pinned(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Under TLS browsers are told to stay with it; not for this machine's own names, which others share."""
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    if scope.get("scheme") != "https" or is_of_this_machine(host):
        return []
    return [(b"Strict-Transport-Security", b"max-age=31536000")]


def common() -> list[tuple[bytes, bytes]]:
    """The headers of every answer, refusals included."""
    return [
        (b"Date", formatdate(usegmt=True).encode()),
        (b"Cache-Control", b"no-store"),
        (b"X-Content-Type-Options", b"nosniff"),
        (b"X-Frame-Options", b"DENY"),
        (b"Referrer-Policy", b"no-referrer"),
        (b"Cross-Origin-Opener-Policy", b"same-origin"),
        (b"Cross-Origin-Resource-Policy", b"same-origin"),
        (b"Content-Security-Policy", b"default-src 'none'; frame-ancestors 'none'"),
    ]
