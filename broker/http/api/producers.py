"""The operator's hand on producers."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from broker.http.api.context import Context, Threaded, answer

router = APIRouter(route_class=Threaded, tags=["producers"])


class Target(BaseModel, extra="forbid"):
    """Whose producers."""

    # Nothing stands for all by being left out.
    target: str | None = Field(min_length=1, max_length=255, description="a name or a pattern; null for all")


class Concerned(TypedDict):
    """The nodes there are that are concerned."""

    nodes: list[str]


class Holds(TypedDict):
    """The names and patterns whose producers are stopped."""

    holds: list[str]


@router.get("/holds", response_model=Holds)
def holds(context: Context) -> Response:
    """Whose producers an operator stops."""
    return answer({"holds": context.ask(lambda model: model.operators.holds())})


@router.post("/producers/stop", response_model=Concerned)
def stop(context: Context, body: Target) -> Response:
    """Stop producers, of nodes to come too, until they are started again."""
    return answer({"nodes": context.ask(lambda model: model.operators.hold(body.target, True))})


@router.post("/producers/start", response_model=Concerned)
def start(context: Context, body: Target) -> Response:
    """Start them again."""
    return answer({"nodes": context.ask(lambda model: model.operators.hold(body.target, False))})
