"""The API as an ASGI application, with its OpenAPI document; every refusal is `{"error": reason}`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import TypedDict

from broker import __version__
from broker.errors import (
    ConflictError,
    ElsewhereError,
    ForbiddenError,
    NotFoundError,
    OperatorError,
    StaleError,
)
from broker.http.api import (
    broker,
    clients,
    cluster,
    diagnostics,
    docs,
    history,
    live,
    logs,
    messages,
    nodes,
    policies,
    producers,
    session,
    subscriptions,
    topology,
)
from broker.http.api.context import RequestContext, answer
from broker.http.api.guard import PREFIX, READS, Guard
from broker.http.api.live import CellFigures, Pulse
from broker.http.server.authenticator import CALLER, NOBODY, Caller, HttpAuthenticator, Rejected
from broker.manage.access import INTERNAL

# Of a request whose route says nothing else.
LARGEST_BODY = 128 << 10
# An answer is no page: nothing in it may run or be shown within another.
POLICY = b"default-src 'none'; frame-ancestors 'none'"


class Refusal(TypedDict):
    """Why not."""

    error: str


# What any request may be answered with, beside what is said at its route.
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": text}
    for status, text in {
        400: "the broker refuses, or a parameter is none",
        401: "nobody knows who asks, or not by that",
        403: "who asks may not, writes are not allowed here, or a foreign page asks",
        404: "no such thing",
        405: "no such verb",
        409: "it exists already, or is busy",
        412: "it has changed meanwhile",
        413: "the body is too large",
        415: "the body is no JSON",
        422: "the body isn't what is needed",
        429: "too many of these, or too many watch already; `Retry-After` says when",
        503: "the broker's loop does not answer",
    }.items()
}
STATUS: tuple[tuple[type[Exception], int], ...] = (
    (StaleError, 412),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (OperatorError, 400),
    (TimeoutError, 503),
)


# Any of them will do; none is needed where no users are configured.
SCHEMES: dict[str, dict[str, str]] = {
    "password": {"type": "http", "scheme": "basic", "description": "a user and password"},
    "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "sluice-session-8672",
        "description": "set by POST /api/v1/session; its name ends with the port, under TLS after `__Host-`",
    },
}
SECURITY: list[dict[str, list[str]]] = [{"password": []}, {"token": []}, {"session": []}, {}]

# What is about the request itself, whichever cell it reaches.
OF_THE_REQUEST = (PREFIX + session.PLACE, f"{PREFIX}/live")
ROUTERS = (
    session.router,
    broker.router,
    nodes.queues,
    nodes.topics,
    subscriptions.router,
    topology.router,
    clients.router,
    policies.router,
    producers.router,
    messages.router,
    history.router,
    live.router,
    logs.router,
    diagnostics.router,
    cluster.router,
    docs.router,
)


def build() -> FastAPI:
    """The routes and their document."""
    api = FastAPI(
        title="Sluice",
        version=__version__,
        description="An AMQP 1.0 broker's management; names in paths are percent-encoded.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=REFUSALS,
        generate_unique_id_function=_operation,
        max_body_size=policies.LARGEST_TEXT,
    )
    for each in ROUTERS:
        api.include_router(each, prefix=PREFIX, max_body_size=LARGEST_BODY)
    for kind, _ in STATUS:
        api.add_exception_handler(kind, _refused)
    api.add_exception_handler(RequestValidationError, _malformed)
    api.add_exception_handler(HTTPException, _unrouted)
    api.add_exception_handler(Exception, _failed)
    api.openapi = partial(_document, api, api.openapi)  # type: ignore[method-assign]
    return api


def _document(api: FastAPI, made: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The document with what a request may be known by."""
    found = made()
    found["components"]["securitySchemes"] = SCHEMES
    found["security"] = SECURITY
    return found


def _document_of_cells(made: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The document of several cells: every request may say which one is to answer."""
    found = made()
    schema = {"type": "integer", "minimum": 0}
    cell = {"name": "cell", "in": "query", "description": "of that cell only", "schema": schema}
    for path, verbs in found["paths"].items():
        for verb in verbs.values() if path not in OF_THE_REQUEST else ():
            named = verb.setdefault("parameters", [])
            if cell not in named:
                named.append(cell)
    return found


def application(
    context: RequestContext,
    guard: Guard,
    reception: HttpAuthenticator,
    over: Callable[[ASGIApp], CellFigures] | None = None,
) -> ASGIApp:
    """What answers requests whose path begins with `/api/v1`.

    ``over`` makes of this cell's API what answers for all cells, to whom it is asked by a client.
    """
    api = build()
    whole = None if over is None else over(api)
    if whole is not None:
        api.openapi = partial(_document_of_cells, api.openapi)  # type: ignore[method-assign]
    api.state.context = context
    api.state.reception = reception
    api.state.pulse = Pulse(context.of(INTERNAL), whole)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                if b"content-security-policy" not in names:
                    message["headers"] = [*message["headers"], (b"content-security-policy", POLICY)]
            await send(message)

        # Where another cell asks, that has seen to who it is for.
        settled = scope.get(CALLER)
        caller = settled or await _caller(scope, guard, reception)
        if isinstance(caller, Rejected):
            await session.turned(caller)(scope, receive, finish)
            return
        scope[CALLER] = caller
        scope["state"]["identity"] = caller.identity
        # A name's `%2F` is no slash: routes see the path as it stood in the request, `Name` decodes it.
        inner = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await (api if whole is None or settled is not None else whole)(inner, receive, finish)

    return serve


async def _caller(scope: Scope, guard: Guard, reception: HttpAuthenticator) -> Caller | Rejected:
    """Whose the request is; nobody's for those that log in and out."""
    refusal = guard.judge(scope)
    if refusal is not None:
        return Rejected(*refusal)
    writes = scope["method"] not in READS
    if writes:
        held_up = reception.hold_up(scope)
        if held_up is not None:
            return held_up
        if scope["raw_path"].decode("latin-1") == PREFIX + session.PLACE:
            return NOBODY
    try:
        caller = await reception.enter(scope)
    except TimeoutError:
        return Rejected(503, "too much is under way")
    if writes and isinstance(caller, Caller) and not caller.by and reception.access.refusal:
        return Rejected(403, reception.access.refusal)
    return caller


def _operation(route: APIRoute) -> str:
    """The verb and the path in one word: `get_queues_name`."""
    words = re.findall(r"\w+", route.path_format.removeprefix(PREFIX))
    return "_".join((min(route.methods or {""}).lower(), *words))


async def _refused(_request: Request, fault: Exception) -> Response:
    status = next(status for kind, status in STATUS if isinstance(fault, kind))
    reason = "the broker's loop does not answer" if isinstance(fault, TimeoutError) else str(fault)
    where = {"Sluice-Cell": str(fault.cell)} if isinstance(fault, ElsewhereError) else None
    return answer({"error": reason}, status, where)


async def _malformed(_request: Request, fault: Exception) -> Response:
    """A body that isn't what is needed is 422, a parameter 400."""
    assert isinstance(fault, RequestValidationError)
    problems = [(tuple(map(str, each["loc"])), str(each["msg"])) for each in fault.errors()]
    of_body = all(where[:1] == ("body",) for where, _ in problems)
    told = "; ".join(f"{'.'.join(where[1:]) or where[0]}: {what}" for where, what in problems[:10])
    return answer({"error": told}, 422 if of_body else 400)


async def _unrouted(_request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    told = {404: f"not found; {PREFIX}/openapi.json says what there is", 405: "method not allowed"}
    reason = told.get(fault.status_code) or str(fault.detail)
    return answer({"error": reason}, fault.status_code, fault.headers)


async def _failed(_request: Request, _fault: Exception) -> Response:
    return answer({"error": "internal error; the broker's log has the details"}, 500)
