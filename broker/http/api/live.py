"""Server-sent events: the broker's figures, and those of the nodes somebody watches, once a second.

All watchers share one reading of the broker. They are few, and one that doesn't read is let go.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from broker.config.networks import network_of
from broker.errors import ForbiddenError
from broker.http.api.context import Context, RequestContext, Threaded
from broker.http.server import limits
from broker.http.server.authenticator import CALLER, Caller, HttpAuthenticator
from broker.manage.access import INTERNAL
from broker.manage.authorized import AuthorizedModel

MOST_WATCHERS = 8
# Where all places are taken: when to ask again.
COME_BACK_S = 5
MOST_NODES = 50
INTERVAL_S = 1.0
# A reading that another watcher asked for less long ago than this serves both.
FRESH_S = 0.5
# How long one event may take to be read.
PATIENCE_S = 10.0

router = APIRouter(route_class=Threaded, tags=["seeing"])
Row = dict[str, object]


@dataclass(eq=False, slots=True)
class Watcher:
    """A place among those that watch. ``who`` is a user, or the network of who says none; ``ended`` once
    another one has the place.
    """

    who: tuple[str, str]
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class CellFigures(Protocol):
    """The API over all cells, where there are several, and the figures that watchers see of them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        ...

    async def broker(self, caller: Caller) -> Row:
        """Return the broker's attributes over all cells."""
        ...

    async def nodes(self, caller: Caller, names: list[str]) -> list[tuple[str, Row]]:
        """Return `node` and its row, or `gone`, for each of these."""
        ...


class Pulse:
    """What all watchers see of the broker, each of whom may; used on the loop's thread only.

    ``cells`` is there where it is one of several.
    """

    def __init__(self, context: RequestContext, cells: CellFigures | None = None) -> None:
        self.cells = cells
        # In the order they came.
        self._watchers: list[Watcher] = []
        self._context = context
        self._reading: asyncio.Task[Row] | None = None
        self._at_s = float("-inf")

    def admit(self, who: tuple[str, str]) -> Watcher | None:
        """A place, if there is one. Where all are taken, whoever has most of them loses the oldest to one
        that has fewer even then.
        """
        if len(self._watchers) >= MOST_WATCHERS:
            counts = Counter(each.who for each in self._watchers)
            [(greedy, places)] = counts.most_common(1)
            if counts[who] + 1 > places - 1:
                return None
            oldest = next(each for each in self._watchers if each.who == greedy)
            oldest.ended.set()
            self.leave(oldest)
        found = Watcher(who)
        self._watchers.append(found)
        return found

    def leave(self, watcher: Watcher) -> None:
        """Its place is free, if it has it still."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    async def broker(self) -> Row:
        """The broker's attributes, no older than ``FRESH_S``."""
        now_s = asyncio.get_running_loop().time()
        if self._reading is None or (self._reading.done() and now_s - self._at_s >= FRESH_S):
            self._at_s = now_s
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> Row:
        if self.cells is not None:
            return await self.cells.broker(Caller(INTERNAL))
        return await self._context.threads.run(self._context.broker)

    async def nodes(self, context: RequestContext, caller: Caller, names: list[str]) -> list[tuple[str, Row]]:
        """`node` and its row, or `gone`, for each of these, as the caller may see it."""
        if self.cells is not None:
            return await self.cells.nodes(caller, names)
        return await context.threads.run(lambda: context.ask(lambda model: _nodes(model, names)))


class Stream(Response):
    """Events without end, until the client goes, doesn't read or is ``ended``; then ``leave`` is called."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: Callable[[], AsyncGenerator[bytes, None]],
        ended: asyncio.Event | None = None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._events = events
        self._ended = ended or asyncio.Event()
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lift = scope.get("extensions", {}).get(limits.ENDLESS)
        if lift is not None:
            lift()
        gone = asyncio.create_task(_gone(receive))
        telling = asyncio.create_task(self._tell(send))
        ended = asyncio.create_task(self._ended.wait())
        tasks: tuple[asyncio.Task[Any], ...] = gone, telling, ended
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(self._events()) as events:
            async for event in events:
                body = {"type": "http.response.body", "body": event, "more_body": True}
                # Not `wait_for`: until Python 3.12 it may swallow the cancellation that ends this.
                async with asyncio.timeout(PATIENCE_S):
                    await send(body)
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@router.get("/live", response_model=None, responses={200: {"content": {"text/event-stream": {}}}})
async def live(
    request: Request,
    context: Context,
    nodes: Annotated[str, Query(max_length=15_000, description="names, with commas between")] = "",
    node: Annotated[list[str] | None, Query(description="a name as it is; may be said again")] = None,
) -> Response:
    """Each second a `broker` event and a `node` event for each of these nodes; `gone` for one there isn't."""
    pulse: Pulse = request.app.state.pulse
    reception: HttpAuthenticator = request.app.state.reception
    caller: Caller = request.scope[CALLER]
    names = [name for name in (*nodes.split(","), *(node or ())) if name]
    if len(names) > MOST_NODES:
        raise HTTPException(400, f"at most {MOST_NODES} nodes can be watched at once")
    context.authorized.see_broker()
    user = caller.identity.user if caller.by else ""
    watcher = pulse.admit((user, "" if user else network_of(request.client.host if request.client else "")))
    if watcher is None:
        raise HTTPException(429, f"{MOST_WATCHERS} watch already", {"Retry-After": str(COME_BACK_S)})

    async def events() -> AsyncGenerator[bytes, None]:
        # A browser that was cut off comes back after so long.
        yield b"retry: 2000\n\n"
        # Who is let in no more sees nothing more; who has other groups by now sees what they may.
        while (identity := reception.now(caller)) is not None:
            for event in await _figures(context.of(identity), pulse, names, Caller(identity, caller.by)):
                yield event
            await asyncio.sleep(INTERVAL_S)

    return Stream(events, watcher.ended, partial(pulse.leave, watcher))


async def _figures(context: RequestContext, pulse: Pulse, names: list[str], caller: Caller) -> list[bytes]:
    """One second's events; a reactor that doesn't answer is told of, and asked again."""
    try:
        context.authorized.see_broker()  # the rules may be others than a second ago
        told = [_event("broker", await pulse.broker())]
        if names:
            told += [_event(kind, row) for kind, row in await pulse.nodes(context, caller, names)]
    except ForbiddenError as refusal:
        return [_event("silent", {"error": str(refusal)})]
    except TimeoutError:
        return [_event("silent", {"error": "the broker's loop does not answer"})]
    return told


def _nodes(model: AuthorizedModel, names: list[str]) -> list[tuple[str, Row]]:
    found = {str(row["name"]): row for row in model.listing.rows(names, ())}
    return [("node", found[name]) if name in found else ("gone", {"name": name}) for name in names]


def _event(kind: str, row: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(row)}\n\n".encode()
