"""Queues and topics: lists, one of them, and making, changing and deleting them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from broker.http.api.context import Context, Name, RequestContext, Threaded, answer
from broker.http.api.listing import List, nodes
from broker.http.api.shapes import Queue, Topic, page_of
from broker.manage.attributes import PREFIX
from broker.manage.authorized import AuthorizedModel
from broker.manage.versions import check_version, version_of

Arguments = dict[str, Any]
Precondition = Annotated[
    str, Header(alias="If-Match", description="the ETag the change is meant for; without one, any")
]

BoundTo = Annotated[str, Query(max_length=255, description="bound to that topic only")]


class NewNode(BaseModel, extra="forbid"):
    """A queue or topic to make."""

    name: str = Field(min_length=1, max_length=255)
    durable: bool | None = None
    arguments: Arguments = Field(default_factory=dict, description="settings in our words or Qpid's")


def router(kind: str, shape: Any) -> APIRouter:
    """The routes of queues, or of topics."""
    made = APIRouter(route_class=Threaded, tags=[f"{kind}s"])
    one = f"/{kind}s/{{name}}"

    if kind == "queue":

        @made.get("/queues", response_model=page_of(shape), summary="A page of queues")
        def queues(context: Context, wanted: List, topic: BoundTo = "") -> Response:
            return answer(nodes(context, (kind,), wanted, topic))

    else:

        @made.get(f"/{kind}s", response_model=page_of(shape), summary=f"A page of {kind}s")
        def many(context: Context, wanted: List) -> Response:
            return answer(nodes(context, (kind,), wanted))

    @made.post(f"/{kind}s", response_model=shape, status_code=201, summary=f"Make a {kind}")
    def create(context: Context, body: NewNode) -> Response:
        def made(model: AuthorizedModel) -> None:
            model.nodes.create(kind, body.name, body.arguments, body.durable)

        return _shown(context, kind, body.name, made, 201)

    @made.get(one, response_model=shape, summary=f"One {kind}; its ETag is the version of its settings")
    def read(context: Context, name: Name) -> Response:
        return _shown(context, kind, name)

    @made.patch(
        one,
        response_model=shape,
        summary=f"Change a {kind}: arguments as they are to be, null takes one back",
    )
    def change(context: Context, name: Name, body: Arguments, if_match: Precondition = "") -> Response:
        def changed(model: AuthorizedModel) -> None:
            check_version(model.nodes.typed(kind, name), _tags(if_match))
            model.nodes.update(name, body)

        return _shown(context, kind, name, changed)

    @made.delete(one, status_code=204, summary=f"Delete a {kind} with its messages; its links are detached")
    def delete(context: Context, name: Name, if_match: Precondition = "") -> Response:
        def gone(model: AuthorizedModel) -> None:
            check_version(model.nodes.typed(kind, name), _tags(if_match))
            model.nodes.delete(name)

        context.ask(gone)
        return Response(status_code=204)

    return made


queues = router("queue", Queue)
topics = router("topic", Topic)


def _shown(
    context: RequestContext,
    kind: str,
    name: str,
    before: Callable[[AuthorizedModel], None] | None = None,
    status: int = 200,
) -> Response:
    """The node as it is now, or after something was done to it in the same turn."""

    def told(model: AuthorizedModel) -> tuple[dict[str, object], str]:
        if before is not None:
            before(model)
        return model.queries.read(PREFIX + kind, name), version_of(model.nodes.typed(kind, name))

    found, version = context.ask(told)
    headers = {"ETag": f'"{version}"'}
    if status == 201:
        headers["Location"] = f"/api/v1/{kind}s/{quote(name, safe='')}"
    return answer(found, status, headers)


def _tags(header: str) -> list[str]:
    return [part.strip().removeprefix("W/").strip('"') for part in header.split(",") if part.strip()]
