"""Logins at the console over cells: each is kept by the cell at which it began, whose number its token bears.

The other cells ask that one, so that a logout holds everywhere at once. Where it doesn't answer, or has been
started again, its logins are over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import asdict

from broker.http.cells.call import CellAnswer, CellCall, CellSilentError
from broker.http.cells.face import CellsFace
from broker.http.server.authenticator import SESSION, Caller
from broker.security.identity import Identity

PLACE = "/login"
# Asks whether a login lasts without using it.
LOOK = "look"
# How old what is known of a login may be, of one that is watched by.
FRESH_S = 1.0


class CellLogins:
    """The logins that other cells keep."""

    def __init__(self, face: CellsFace) -> None:
        self._face = face
        self.mark = f"{face.own}."
        self.cells = face.cells

    def is_elsewhere(self, token: str) -> bool:
        """Whether another cell keeps the login of a token."""
        return self._cell_of(token) is not None

    async def caller(self, token: str) -> Caller | None:
        """Return whose a token of another cell is, None for nobody's."""
        identity = await self.find(token)
        return None if identity is None else Caller(identity, SESSION, _Followed(self, token, identity))

    async def find(self, token: str, *, uses: bool = True) -> Identity | None:
        """Return whose a token is, None for nobody's or where its cell doesn't answer."""
        found = await self._ask(CellCall("GET", PLACE, "" if uses else LOOK, session=token))
        if found is None or not found.is_good:
            return None
        told = found.json()
        return Identity(**{**told, "groups": frozenset(told["groups"])})

    async def end(self, token: str) -> bool:
        """End a login; whether its cell has done it."""
        return await self._ask(CellCall("DELETE", PLACE, session=token)) is not None

    async def _ask(self, call: CellCall) -> CellAnswer | None:
        cell = self._cell_of(call.session)
        try:
            return None if cell is None else await self._face.ask(cell, call)
        except CellSilentError:
            return None

    def _cell_of(self, token: str) -> int | None:
        number, mark, _ = token.partition(".")
        if not mark or not number.isascii() or not number.isdecimal() or len(number) > 5:
            return None
        cell = int(number)
        return cell if cell < self._face.cells and cell != self._face.own else None


class _Followed:
    """Who a watcher is by now, as the cell that keeps its login said a moment ago."""

    def __init__(self, logins: CellLogins, token: str, identity: Identity) -> None:
        self._logins = logins
        self._token = token
        self._identity: Identity | None = identity
        self._at_s = time.monotonic()
        self._asking: asyncio.Task[None] | None = None

    def __call__(self) -> Identity | None:
        now_s = time.monotonic()
        if now_s - self._at_s >= FRESH_S and (self._asking is None or self._asking.done()):
            self._at_s = now_s
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return self._identity

    async def _ask(self) -> None:
        self._identity = await self._logins.find(self._token, uses=False)


def answering(
    find: Callable[[str, bool], Identity | None], end: Callable[[str], bool]
) -> Callable[[CellCall], CellAnswer]:
    """Return what answers other cells about the logins of this one: ``find`` a token's, using it or not."""

    def on_session(call: CellCall) -> CellAnswer:
        if call.method == "DELETE":
            end(call.session)
            return CellAnswer(200)
        identity = find(call.session, call.query != LOOK)
        if identity is None:
            return CellAnswer(404)
        told = {**asdict(identity), "groups": sorted(identity.groups)}
        return CellAnswer(200, json.dumps(told).encode(), {"content-type": "application/json"})

    return on_session
