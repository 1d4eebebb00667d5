"""Subscriptions to topics, which receivers make and operators may end."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from broker.http.api.context import Context, Name, Threaded, answer
from broker.http.api.listing import List, nodes
from broker.http.api.shapes import Queue, Subscription, page_of
from broker.manage.attributes import PREFIX
from broker.manage.authorized import AuthorizedModel
from broker.manage.entities import NODE_KINDS

router = APIRouter(route_class=Threaded, tags=["subscriptions"])
Kind = Annotated[
    Literal["queue", "topic", "subscription"] | None, Query(description="of one kind only; all of them")
]
Topic = Annotated[
    str,
    Query(max_length=255, description="of that topic only, those by a pattern that means it included"),
]


@router.get("/subscriptions", response_model=page_of(Subscription))
def many(context: Context, wanted: List, topic: Topic = "") -> Response:
    """A page of them."""
    return answer(nodes(context, ("subscription",), wanted, topic))


@router.get("/subscriptions/{name}", response_model=Subscription)
def read(context: Context, name: Name) -> Response:
    """One of them."""
    return answer(context.ask(lambda model: model.queries.read(PREFIX + "subscription", name)))


@router.delete("/subscriptions/{name}", status_code=204)
def delete(context: Context, name: Name) -> Response:
    """End it with its messages; its receivers are detached."""

    def gone(model: AuthorizedModel) -> None:
        model.nodes.typed("subscription", name)
        model.nodes.delete(name)

    context.ask(gone)
    return Response(status_code=204)


@router.get("/nodes", response_model=page_of(Queue), tags=["nodes"])
def every(context: Context, wanted: List, kind: Kind = None) -> Response:
    """Queues, topics and subscriptions in one list."""
    return answer(nodes(context, NODE_KINDS if kind is None else (kind,), wanted))
