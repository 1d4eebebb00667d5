"""What the broker writes into its log: levels, and the frames of one connection for a while."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from broker.http.api.context import Context, Threaded, answer
from broker.manage.authorized import AuthorizedModel
from broker.manage.tracing import FRAMES, SECONDS, TraceRequest

router = APIRouter(route_class=Threaded, tags=["logs"])


class Levels(TypedDict):
    """Each logger and the level it writes from."""

    levels: dict[str, str]


class NewLevels(BaseModel, extra="forbid"):
    """Loggers and the levels they are to write from; null is the level of `sluice`."""

    levels: dict[str, str | None] = Field(max_length=100)


class Traced(BaseModel, extra="forbid"):
    """Whose frames: a connection's id; how many, and for how long."""

    connection: str = Field(min_length=1, max_length=255)
    frames: int = Field(FRAMES, ge=0, le=1 << 31)
    seconds: int = Field(SECONDS, ge=0, le=1 << 31)


class Ordered(TypedDict):
    """What will be written."""

    connection: str
    frames: int
    seconds: int


@router.get("/log-levels", response_model=Levels)
def levels(context: Context) -> Response:
    """From which level on each logger writes."""
    return answer({"levels": context.ask(lambda model: model.log_levels.effective())})


@router.put("/log-levels", response_model=Levels)
def change(context: Context, body: NewLevels) -> Response:
    """Other levels for some of them, until the settings are read again."""

    def changed(model: AuthorizedModel) -> dict[str, str]:
        found: dict[str, str] = {}
        for logger, level in body.levels.items():
            found = model.log_levels.change(logger, level or "")
        return found or model.log_levels.effective()

    return answer({"levels": context.ask(changed)})


@router.post("/trace", response_model=Ordered)
def trace(context: Context, body: Traced) -> Response:
    """Write the frames of a connection to the log for a while; 0 frames end it."""
    order = TraceRequest(body.connection, body.frames, body.seconds)
    return answer(asdict(context.ask(lambda model: model.tracing.order(order))))
