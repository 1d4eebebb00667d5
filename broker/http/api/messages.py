"""A queue's messages: looking at them, dropping them, moving them."""

from __future__ import annotations

from dataclasses import asdict
from threading import Event
from time import monotonic
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from broker.codec.render import described
from broker.http.api.context import Context, Name, Threaded, answer

router = APIRouter(route_class=Threaded, tags=["messages"])
MOST_MESSAGES = 100
MOST_GROUPS = 1000
# How long the disk may take for them.
MOST_SECONDS = 30.0


class Messages(TypedDict):
    """The oldest; `paged` is how many of all the queue has are on disk only."""

    messages: list[dict[str, Any]]
    paged: int


class DelayedListing(TypedDict):
    """Those that wait for their time, and how many of them there are in all."""

    messages: list[dict[str, Any]]
    total: int


class Purge(BaseModel, extra="forbid"):
    """Whether only to count."""

    dry_run: bool = False


class Purged(TypedDict):
    """How many are, or would be, dropped."""

    purged: int


class Move(BaseModel, extra="forbid"):
    """Where to, and how many of the oldest: 0 is all."""

    target: str = Field(min_length=1, max_length=255)
    count: int = Field(0, ge=0, le=1 << 53)
    dry_run: bool = False


class Moved(TypedDict):
    """How many will go."""

    moved: int


@router.get("/queues/{name}/messages", response_model=Messages)
def browse(
    context: Context,
    name: Name,
    offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_MESSAGES)] = 20,
) -> Response:
    """The oldest, as they lie there: sections by name, and the beginning of each body."""
    there = Event()
    browsing = context.ask(lambda model: model.messages.browse(name, offset, count, there.set))
    until = monotonic() + MOST_SECONDS
    while (found := context.ask(lambda _: browsing.go_on())) is None:
        # Another piece of it is read from disk.
        if not there.wait(max(until - monotonic(), 0)):
            raise TimeoutError("the disk did not answer in time")
        there.clear()
    shown = [
        {
            "number": each.number,
            "state": each.state,
            "bytes": each.bytes,
            "durable": each.durable,
            "delivery_count": each.delivery_count,
            "redelivered": each.redelivered,
            "message": described(each.message),
        }
        for each in found.messages
    ]
    return answer({"messages": shown, "paged": found.paged})


@router.get("/queues/{name}/delayed", response_model=DelayedListing)
def delayed(
    context: Context,
    name: Name,
    offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_MESSAGES)] = 20,
) -> Response:
    """Those that wait for their time, the next first; `due_ms` is in milliseconds since the epoch."""
    found = context.ask(lambda model: model.messages.delayed(name, offset, count))
    shown = [
        {
            "number": each.number,
            "due_ms": each.due_ms,
            "bytes": each.bytes,
            "durable": each.durable,
            "delivery_count": each.delivery_count,
            "message": described(each.message),
        }
        for each in found.messages
    ]
    return answer({"messages": shown, "total": found.total})


@router.delete("/queues/{name}/delayed/{number}", status_code=204)
def cancel(context: Context, name: Name, number: Annotated[int, Path(ge=0, le=1 << 53)]) -> Response:
    """Drop one that waits for its time."""
    context.ask(lambda model: model.messages.cancel(name, number))
    return Response(status_code=204)


@router.post("/queues/{name}/purge", response_model=Purged)
def purge(context: Context, name: Name, body: Purge) -> Response:
    """Drop all that no consumer holds."""
    return answer({"purged": context.ask(lambda model: model.messages.purge(name, body.dry_run))})


class Group(TypedDict):
    """A message group: the id of the consumer link that has it, and its messages that were looked at."""

    group: str
    link: str
    waiting: int
    unsettled: int
    ending: bool


class Groups(TypedDict):
    """Those with most waiting messages first."""

    groups: list[Group]


class GroupReset(BaseModel, extra="forbid"):
    """Which group."""

    group: str = Field(min_length=1, max_length=65_535)


class GroupFree(TypedDict):
    """Whether it is free already; else it is once its consumer has settled what it holds."""

    free: bool


@router.get("/queues/{name}/groups", response_model=Groups)
def groups(
    context: Context,
    name: Name,
    offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_GROUPS)] = 100,
    wanted: Annotated[
        str, Query(alias="filter", max_length=255, description="part of a group's id, or a pattern with `*`")
    ] = "",
) -> Response:
    """The message groups of a queue."""
    found = context.ask(lambda model: model.messages.groups(name, offset, count, wanted))
    return answer({"groups": [asdict(each) for each in found]})


@router.post("/queues/{name}/groups/reset", response_model=GroupFree)
def reset_group(context: Context, name: Name, body: GroupReset) -> Response:
    """Take a message group from its consumer, so that its next message may go to another."""
    return answer({"free": context.ask(lambda model: model.messages.reset_group(name, body.group))})


class ReaderShape(TypedDict):
    """A named reader of a stream; `link` is the id of the link that reads for it, empty for none."""

    reader: str
    committed_offset: int
    lag_msgs: int
    link: str


class Readers(TypedDict):
    """Those that are furthest behind first."""

    readers: list[ReaderShape]


@router.get("/queues/{name}/readers", response_model=Readers)
def readers(
    context: Context,
    name: Name,
    offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_GROUPS)] = 100,
) -> Response:
    """The named readers of a stream."""
    found = context.ask(lambda model: model.readers.listed(name, offset, count))
    return answer({"readers": [asdict(each) for each in found]})


@router.delete("/queues/{name}/readers/{reader}", status_code=204)
def forget_reader(context: Context, name: Name, reader: Name) -> Response:
    """Forget one for which no link reads; producers wait for it no more."""
    context.ask(lambda model: model.readers.forget(name, reader))
    return Response(status_code=204)


@router.post("/queues/{name}/move", response_model=Moved)
def move(context: Context, name: Name, body: Move) -> Response:
    """Move the oldest to another queue, as that has room."""
    given = body.target, body.count, body.dry_run
    return answer({"moved": context.ask(lambda model: model.messages.move(name, *given))})
