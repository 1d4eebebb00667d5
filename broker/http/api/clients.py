"""Connections, sessions and links of clients, and ending them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from broker.http.api.context import Context, Name, Threaded, answer
from broker.http.api.listing import List, Row, others
from broker.http.api.shapes import Connection, Link, Session, page_of
from broker.manage.attributes import PREFIX

router = APIRouter(route_class=Threaded, tags=["clients"])
Node = Annotated[str, Query(max_length=255, description="of that node only")]
Role = Annotated[Literal["producer", "consumer"] | None, Query(description="of that role only")]
Of = Annotated[str, Query(max_length=100, description="of the connection of that id only")]


@router.get("/connections", response_model=page_of(Connection))
def connections(context: Context, wanted: List) -> Response:
    """Clients that are connected."""
    return answer(others(context, "connection", wanted))


@router.get("/connections/{id}", response_model=Connection)
def connection(context: Context, id: Name) -> Response:  # noqa: A002 - the path's word
    """One of them, by its id."""
    return answer(context.ask(lambda model: model.queries.read(PREFIX + "connection", id)))


@router.delete("/connections/{id}", status_code=204)
def close(context: Context, id: Name) -> Response:  # noqa: A002 - the path's word
    """Close it, with the error `amqp:connection:forced`."""
    context.ask(lambda model: model.operators.close_connection(id))
    return Response(status_code=204)


@router.get("/sessions", response_model=page_of(Session))
def sessions(context: Context, wanted: List) -> Response:
    """Their sessions."""
    return answer(others(context, "session", wanted))


@router.get("/links", response_model=page_of(Link))
def links(
    context: Context, wanted: List, node: Node = "", role: Role = None, connection: Of = ""
) -> Response:
    """Their links; a producer's and a consumer's have attributes of their own."""

    def shown(row: Row) -> bool:
        return (role is None or row["role"] == role) and (not connection or row["connection"] == connection)

    return answer(others(context, "link", wanted, shown, node))


@router.delete("/links/{id}", status_code=204)
def detach(context: Context, id: Name) -> Response:  # noqa: A002 - the path's word
    """Detach it, with the error `amqp:link:detach-forced`; its connection goes on."""
    context.ask(lambda model: model.operators.detach_link(id))
    return Response(status_code=204)
