"""Who asks, what they may do, and the console's login."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from broker.http.api.context import Context, RequestContext, Threaded, answer
from broker.http.server import cookies
from broker.http.server.authenticator import CALLER, SESSION, Caller, HttpAuthenticator, Rejected
from broker.manage.access import BROKER, refusal
from broker.security.acl import Action
from broker.security.users import LONGEST_NAME, LONGEST_PASSWORD

router = APIRouter(route_class=Threaded, tags=["session"])
PLACE = "/session"
LARGEST_BODY = 8192
# Nobody needs to be known for these.
OPEN: dict[str, Any] = {"security": [{}]}
Of = Annotated[str, Query(max_length=255, description="what may be done there; the broker as a whole")]


class Login(BaseModel, extra="forbid"):
    """A user and password."""

    user: str = Field(min_length=1, max_length=LONGEST_NAME)
    password: str = Field(max_length=LONGEST_PASSWORD)


class Who(TypedDict):
    """Who asks. `by`: password, token, certificate, session, or empty for nobody. `logins`: one can log
    in; `rules`: there are rules who may do what. `may`: why each action may not be done, if so.
    """

    user: str
    groups: list[str]
    by: str
    logins: bool
    rules: bool
    address: str
    may: dict[str, str]


@router.get(PLACE, response_model=Who)
async def who(context: Context, request: Request, address: Of = BROKER) -> Response:
    """Who you are, and what you may do at an address."""
    return answer(_who(request, context, request.scope[CALLER], address))


@router.post(PLACE, response_model=Who, max_body_size=LARGEST_BODY, openapi_extra=OPEN)
async def login(context: Context, request: Request, body: Login) -> Response:
    """Begin a session: its cookie is in the answer. One that was there before ends."""
    reception: HttpAuthenticator = request.app.state.reception
    found = await reception.login(request.scope, body.user, body.password)
    if isinstance(found, Rejected):
        return turned(found)
    token, identity = found
    told = _who(request, context, Caller(identity, SESSION), BROKER)
    return answer(told, headers={"Set-Cookie": cookies.said(request.scope, token)})


@router.delete(PLACE, status_code=204, openapi_extra=OPEN)
async def logout(request: Request) -> Response:
    """End the session that the request comes with; it is well if there is none."""
    reception: HttpAuthenticator = request.app.state.reception
    reception.logout(request.scope)
    if not await reception.logout_elsewhere(request.scope):
        return turned(Rejected(503, "the cell that keeps this login doesn't answer: log out again"))
    return Response(status_code=204, headers={"Set-Cookie": cookies.unsaid(request.scope)})


def turned(found: Rejected) -> Response:
    """The answer to who is turned away."""
    return answer({"error": found.reason}, found.status, dict(found.headers))


def _who(request: Request, context: RequestContext, caller: Caller, address: str) -> dict[str, Any]:
    identity, allows = caller.identity, context.model.authority.allows
    reception: HttpAuthenticator = request.app.state.reception
    cells = reception.cells
    return {
        **({} if cells is None else {"cells": cells}),
        "user": identity.user,
        "groups": sorted(identity.groups),
        "by": caller.by,
        "logins": reception.access.users() is not None,
        "rules": not context.model.authority.is_open,
        "address": address,
        "may": {
            action: "" if allows(identity, action, address) else refusal(identity, action, address)
            for action in Action
            if action is not Action.CONNECT
        },
    }
