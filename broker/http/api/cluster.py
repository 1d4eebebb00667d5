"""The replicated cell that the broker is a member of, and its hand-over."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from broker.http.api.context import Context, Threaded, answer
from broker.manage.cluster import ClusterStatus

router = APIRouter(route_class=Threaded, tags=["broker"])


class Successor(BaseModel, extra="forbid"):
    """The member that is to own the cell."""

    member: str = Field("", max_length=255, description="a standby; empty for the one that has come farthest")


class MovedTo(TypedDict):
    """The member that the cell goes to."""

    member: str


@router.get("/cluster", response_model=ClusterStatus)
def cluster(context: Context) -> Response:
    """How the cell is: its owner, its members and its log; 404 where the broker is no member."""
    # Not asked of the loop: it is wanted most where that is busy.
    return answer(asdict(context.authorized.cluster.status()))


@router.post("/cluster/move", response_model=MovedTo, status_code=202)
def move(context: Context, body: Successor) -> Response:
    """Hand the cell over to another member; connections are closed, and clients find the new owner."""
    return answer({"member": context.authorized.cluster.move(body.member)}, 202)
