"""Policies with where they come from, what they come to at an address, and what a change would do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from broker.http.api.context import Context, Name, Threaded, answer
from broker.http.api.listing import List, others
from broker.http.api.shapes import PolicyShape, page_of

router = APIRouter(route_class=Threaded, tags=["policies"])
LARGEST_TEXT = 1 << 20


class Text(BaseModel, extra="forbid"):
    """Policies as a file has them."""

    text: str = Field(max_length=LARGEST_TEXT)
    file: str = Field("request", max_length=255, description="what origins and faults call it")
    dry_run: bool = False


class Nothing(BaseModel, extra="forbid"):
    """Nothing needs to be said."""


class Changed(TypedDict):
    """The nodes that have, or would have, other settings."""

    changed: list[str]


class Explained(TypedDict):
    """Every setting at an address and where its value comes from."""

    address: str
    kind: str
    exists: bool
    auto_create: bool
    held_by: str
    settings: list[dict[str, Any]]


class Change(BaseModel, extra="forbid"):
    """Arguments as PATCH takes them."""

    name: str = Field(min_length=1, max_length=255)
    arguments: dict[str, Any] = {}


class EffectShape(TypedDict):
    """What would be so; `gate` is open or stopped."""

    name: str
    settings_before: dict[str, Any]
    settings_after: dict[str, Any]
    changed: list[str]
    gate_before: str
    gate_after: str
    depth_msgs: int
    depth_bytes: int
    promised_msgs: int
    revoked_msgs: int


@router.get("/policies", response_model=page_of(PolicyShape))
def policies(context: Context, wanted: List) -> Response:
    """Those that hold, each setting with file, line and column."""
    return answer(others(context, "policy", wanted))


@router.post("/policies/apply", response_model=Changed, max_body_size=LARGEST_TEXT)
def apply(context: Context, body: Text) -> Response:
    """Policies in place of those of the same patterns, until the policy files are read again."""
    given = context.authorized.policy_reader.read_text(body.text, body.file, body.dry_run)
    if body.dry_run:
        return answer({"changed": context.ask_in_parts(lambda model: model.policies.try_in_parts(given))})
    return answer({"changed": context.do_in_parts(lambda model: model.policies.apply_in_parts(given))})


@router.post("/reload", response_model=Changed)
def reload(context: Context, body: Nothing | None = None) -> Response:
    """Read settings and policies again."""
    read = context.authorized.policy_reader.read_again()
    return answer({"changed": context.do_in_parts(lambda model: model.policies.reload_in_parts(read))})


@router.get("/explain/{address:path}", response_model=Explained)
def explain(context: Context, address: Name) -> Response:
    """What holds at an address, whether or not there is a node yet."""
    return answer(asdict(context.ask(lambda model: model.explanations.explain(address))))


@router.post("/effect", response_model=EffectShape)
def effect(context: Context, body: Change) -> Response:
    """What a change of a node's arguments would do; nothing is changed."""
    return answer(asdict(context.ask(lambda model: model.explanations.effect(body.name, body.arguments))))
