"""What happened, and why things wait: events, reasons, deadlocks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict

from broker.http.api.context import JSON, Context, Name, Threaded, answer

# Events of one answer, unless it is asked for another number of them; the broker keeps no more than the last.
EVENTS, MOST_EVENTS = 100, 1000

router = APIRouter(route_class=Threaded, tags=["seeing"])


class Answers(TypedDict):
    """One answer for each link that waits."""

    answers: list[dict[str, Any]]


class Deadlocks(TypedDict):
    """Those that stand now."""

    deadlocks: list[dict[str, Any]]


@router.get("/events", response_model=list[dict[str, Any]])
def events(
    context: Context,
    count: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = EVENTS,
    samples: Annotated[str, Query(description="`false` leaves samples out")] = "true",
) -> Response:
    """The last events, oldest first."""
    lines = context.authorized.diagnostics.events(count, samples != "false")
    return Response(b"[" + b",\n".join(line.rstrip() for line in lines) + b"]\n", media_type=JSON)


@router.get("/why", response_model=Answers)
def why_all(context: Context) -> Response:
    """Why each producer waits that has no credit, and each consumer that is held up."""
    return answer(
        {"answers": [asdict(each) for each in context.ask(lambda model: model.diagnostics.why(""))]}
    )


@router.get("/why/{address:path}", response_model=Answers)
def why(context: Context, address: Name) -> Response:
    """The same for a node, or a link by its name or id."""
    return answer(
        {"answers": [asdict(each) for each in context.ask(lambda model: model.diagnostics.why(address))]}
    )


@router.get("/deadlocks", response_model=Deadlocks)
def deadlocks(context: Context) -> Response:
    """Nodes and connections that wait for each other in a circle."""
    found = context.ask(lambda model: model.diagnostics.deadlocks())
    return answer({"deadlocks": [asdict(each) for each in found]})
