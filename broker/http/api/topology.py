"""Bindings, bridges, routes and channels: the ways from one node to another."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from broker.http.api.context import Context, Threaded, answer
from broker.http.api.listing import List, others
from broker.http.api.shapes import BindingShape, Bridge, Channel, Route, page_of
from broker.manage.attributes import PREFIX
from broker.manage.authorized import AuthorizedModel
from broker.manage.bindings import Binding

router = APIRouter(route_class=Threaded, tags=["conduits"])

Topic = Annotated[str, Query(max_length=255, description="of that topic only")]
NodeName = Annotated[str, Field(min_length=1, max_length=255)]


class Ends(BaseModel, extra="forbid"):
    """A topic, and the queue that takes what is sent to it."""

    source: NodeName
    target: NodeName


class BridgeEnds(BaseModel, extra="forbid"):
    """Two nodes, of which one is copied into the other."""

    source: NodeName = Field(alias="from")
    to: NodeName


class NewBridge(BridgeEnds, extra="forbid"):
    """A bridge to make; `durable` is what its source is, unless that is said."""

    selector: str = Field("", max_length=10_000)
    durable: bool | None = None


@router.get("/bindings", response_model=page_of(BindingShape))
def bindings(context: Context, wanted: List, topic: Topic = "") -> Response:
    """Which queues take what is sent to which topics."""
    return answer(others(context, "binding", wanted, lambda row: topic in ("", row["source"])))


@router.post("/bindings", response_model=BindingShape, status_code=201)
def bind(context: Context, body: Ends) -> Response:
    """From now on the queue takes what is sent to the topic."""

    def made(model: AuthorizedModel) -> dict[str, object]:
        model.nodes.bind(body.source, body.target)
        return model.queries.read(PREFIX + "binding", Binding(body.source, body.target).name)

    return answer(context.ask(made), 201)


@router.delete("/bindings", status_code=204)
def unbind(context: Context, body: Ends) -> Response:
    """It takes no more; what it took stays in it."""
    context.ask(lambda model: model.nodes.unbind(body.source, body.target))
    return Response(status_code=204)


@router.get("/bridges", response_model=page_of(Bridge))
def bridges(context: Context, wanted: List) -> Response:
    """Nodes that are copied into others."""
    return answer(others(context, "bridge", wanted))


@router.post("/bridges", response_model=Bridge, status_code=201)
def bridge(context: Context, body: NewBridge) -> Response:
    """Copy a node into another from now on."""
    given = {"from": body.source, "to": body.to, "selector": body.selector, "durable": body.durable}

    def made(model: AuthorizedModel) -> dict[str, object]:
        name = model.bridges.create(_name(body), given)
        return model.queries.read(PREFIX + "bridge", name)

    return answer(context.ask(made), 201)


@router.delete("/bridges", status_code=204)
def unbridge(context: Context, body: BridgeEnds) -> Response:
    """Take a bridge away; those of the broker's file come back when that is read again."""
    context.ask(lambda model: model.bridges.delete(_name(body)))
    return Response(status_code=204)


@router.get("/routes", response_model=page_of(Route))
def routes(context: Context, wanted: List) -> Response:
    """Queues and topics to and from other brokers."""
    return answer(others(context, "route", wanted))


@router.get("/channels", response_model=page_of(Channel))
def channels(context: Context, wanted: List) -> Response:
    """Topics that are sent out as datagrams."""
    return answer(others(context, "channel", wanted))


def _name(ends: BridgeEnds) -> str:
    return f"{ends.source}->{ends.to}"
