"""Where a request's handler finds the broker, and how it answers.

A handler is an ordinary function that runs in a thread of its own; what it wants to know or do it asks of the
reactor's thread, in pieces that are short there, and its answer is encoded in its own thread.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from broker.http.api.listpart import PART, ListPart
from broker.http.server.calls import Ask, AskInParts
from broker.http.server.threads import Threads
from broker.manage.authorized import AuthorizedModel
from broker.manage.model import Model
from broker.security.identity import ANONYMOUS, Identity

JSON = "application/json"
Answer = TypeVar("Answer")


class RequestContext:
    """The broker's model as one identity may use it, and the way to its thread."""

    def __init__(
        self,
        model: Model,
        ask: Ask,
        ask_in_parts: AskInParts,
        threads: Threads,
        identity: Identity = ANONYMOUS,
        part: ListPart | None = None,
    ) -> None:
        self.model = model
        # The part of a list that another cell asks for.
        self.part = part
        self.threads = threads
        self.authorized = AuthorizedModel(model, identity)
        self._ask = ask
        self._ask_in_parts = ask_in_parts

    def of(self, identity: Identity, part: ListPart | None = None) -> RequestContext:
        """The same for somebody else."""
        return RequestContext(self.model, self._ask, self._ask_in_parts, self.threads, identity, part)

    def ask(self, question: Callable[[AuthorizedModel], Answer]) -> Answer:
        """The answer to a question that the reactor's thread answers, in a turn of its own."""
        return self._ask(lambda: question(self.authorized))

    def ask_in_parts(self, question: Callable[[AuthorizedModel], Generator[None, None, Answer]]) -> Answer:
        """The same for what is answered in steps, between which the reactor goes on."""
        return self._ask_in_parts(lambda: question(self.authorized))

    def do_in_parts(self, question: Callable[[AuthorizedModel], Generator[None, None, Answer]]) -> Answer:
        """The same for what changes something, which is on disk afterwards."""
        found = self.ask_in_parts(question)
        self.ask(lambda _: None)
        return found

    def broker(self) -> dict[str, object]:
        """The broker's attributes, for which every node is looked at: in many turns."""
        return self.ask_in_parts(lambda model: model.queries.broker_in_parts())


async def _context(request: Request) -> RequestContext:
    """Whoever asks is in the request's state; nobody known is anonymous, and has the rights of that."""
    found: RequestContext = request.app.state.context
    state = request.scope.get("state", {})
    return found.of(state.get("identity", ANONYMOUS), state.get(PART))


Context = Annotated[RequestContext, Depends(_context)]


class Threaded(APIRoute):
    """A route whose handler runs in a thread of its own; it takes ``context: Context``."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **named: Any) -> None:
        threaded = endpoint if iscoroutinefunction(endpoint) else _in_a_thread(endpoint)
        if not named.get("summary") and endpoint.__doc__:
            named["summary"] = endpoint.__doc__.strip().partition("\n")[0].rstrip(".")
        super().__init__(path, threaded, **named)


def _in_a_thread(handler: Callable[..., Answer]) -> Callable[..., Awaitable[Answer]]:
    @wraps(handler)
    async def run(*, context: RequestContext, **named: Any) -> Answer:
        return await context.threads.run(partial(handler, context=context, **named))

    return run


def answer(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(json.dumps(content).encode() + b"\n", status, headers, media_type=JSON)


def _decoded(text: object) -> object:
    """A path's part as it was meant: paths reach the routes as they stood in the request."""
    return unquote_to_bytes(text).decode() if isinstance(text, str) else text


# The name of an entity in a path, in which `/` is `%2F`.
Name = Annotated[str, BeforeValidator(_decoded), Path(description="the name, percent-encoded")]
