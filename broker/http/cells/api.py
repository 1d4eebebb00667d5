"""The API over all cells: each request is asked of the cells it concerns, and their answers become one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.errors import ForbiddenError
from broker.http.api.guard import PREFIX
from broker.http.api.listpart import ListPart
from broker.http.cells import merging, routing
from broker.http.cells.call import CellAnswer, CellCall
from broker.http.cells.face import ABSENT, CellAnswers, CellsFace, refused
from broker.http.cells.merging import Row
from broker.http.cells.routing import NoCellError, Plan, planned
from broker.http.server.authenticator import CALLER, Caller
from broker.http.server.threads import Threads

# Of a request's body; each cell has its own bound for each route.
LARGEST_BODY = 2 << 20
MISDIRECTED = "sluice-cell"
KEPT = ("etag", "location", "retry-after", "content-type")
NODE_LISTS = ("queues", "topics", "subscriptions", "nodes")
ADDRESS = "address"
# Settings and policies are the same in all, but a write that only some cells have done isn't done.
PARTLY = 503
Answer = TypeVar("Answer")


class CellsApi:
    """Answers requests whose caller is settled; ``here`` is the API of the cell that was reached."""

    def __init__(self, here: ASGIApp, face: CellsFace, threads: Threads) -> None:
        self._here = here
        self._face = face
        self._threads = threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the cells that the request concerns."""
        method, path = scope["method"], scope["raw_path"].decode("latin-1")
        search = scope["query_string"].decode("latin-1")
        try:
            plan = planned(method, path, search, self._face.directory)
        except NoCellError as fault:
            await _response(refused(400, str(fault)))(scope, receive, send)
            return
        if plan.how == routing.OWN or (plan.how == routing.HERE and plan.cell is None):
            await self._here(scope, receive, send)
            return
        try:
            body = await _body(receive)
        except ValueError:
            await _response(refused(413, "the body is too large"))(scope, receive, send)
            return
        except ClientDisconnect:
            return
        headers = tuple(each for each in scope["headers"] if each[0] in (b"if-match", b"content-type"))
        call = CellCall(method, plan.path, plan.search, body, headers, scope[CALLER])
        try:
            found = await self._found(plan, call)
        except TimeoutError as fault:
            found = refused(503, str(fault) or "too much is under way")
        await _response(found)(scope, receive, send)

    async def _found(self, plan: Plan, call: CellCall) -> CellAnswer:
        if plan.how == routing.LIST:
            return await self._list(plan, call)
        if plan.cell is not None and (plan.how != routing.EACH or plan.is_said):
            return await self._of(plan.cell, call, plan.is_said, plan.name)
        if plan.how == routing.OWNER_OF or (plan.by == "nodes" and plan.how == routing.EACH):
            return await self._by_body(plan, call)
        if plan.how in (routing.FIND, routing.FIND_OF):
            return await self._sought(plan, call)
        return await self._of_each(plan, call)

    # --- one cell

    async def _of(self, cell: int, call: CellCall, is_said: bool, name: str = "") -> CellAnswer:
        """Return one cell's answer with its number; a node that isn't where its name belongs is asked for
        where it is: dead letters are in the cell that they come from, subscriptions in their topic's.
        """
        found = await self._face.one(cell, call)
        if found.status == 404 and not is_said and name:
            place = CellCall("GET", f"{PREFIX}/nodes", "fields=name", caller=call.caller)
            answers = await self._face.each(replace(place, part=ListPart((name,))))
            said = await self._off(lambda: _json(answers.without_bad()))
            there = [each for each, rows in said.items() if rows["items"] and each != cell]
            if len(there) > 1:
                return refused(409, _several(name, there))
            if there:
                [cell] = there
                found = await self._face.one(cell, call)
        return await self._off(partial(_with_cell, found, cell))

    async def _by_body(self, plan: Plan, call: CellCall) -> CellAnswer:
        body = _object(call.body)
        try:
            field = "target" if plan.how == routing.EACH else plan.by
            cell, is_said = self._face.directory.of_body(body, field)
        except NoCellError as fault:
            return refused(400, str(fault))
        if is_said:
            call = replace(call, body=json.dumps(body).encode())
        elif plan.how == routing.EACH:
            return await self._of_each(plan, call)
        # Without a name it is refused by any cell, in its own words.
        return await self._of(self._face.own if cell is None else cell, call, is_said)

    async def _sought(self, plan: Plan, call: CellCall) -> CellAnswer:
        """Ask the one cell that has a connection or link of an id; each cell counts its own."""
        wanted = plan.name or str(_object(call.body).get("connection", ""))
        place = CellCall("GET", f"{PREFIX}{plan.by}", "", caller=call.caller, part=ListPart())
        answers = (await self._face.each(place)).without_bad()
        known = await self._off(
            lambda: [
                cell
                for cell, each in sorted(answers.said.items())
                if any(identity == wanted for _, identity in each.json()["keys"])
            ]
        )
        if len(known) > 1:
            return refused(409, _several(wanted, known))
        if not known and answers.absent:
            return refused(503, _gone(answers.absent))
        return await self._of(known[0] if known else self._face.own, call, is_said=True)

    # --- all cells

    async def _of_each(self, plan: Plan, call: CellCall) -> CellAnswer:
        answers = await self._face.each(call)
        good = answers.without_bad()
        if not good.said:
            return _refusal(answers) or refused(503, _gone(answers.absent))
        if call.method == "GET":
            return await self._off(partial(_merged, plan, good, self._face.own, _known(answers)))
        if good.absent:
            return await self._off(partial(_partly, plan, good))
        return await self._off(partial(_merged, plan, good, self._face.own, {}))

    async def broker(self, caller: Caller) -> Row:
        """Return the broker's figures over all cells; TimeoutError where none answers."""
        call = CellCall("GET", f"{PREFIX}/broker", caller=caller)
        answers = (await self._face.each(call)).without_bad()
        if not answers.said:
            raise TimeoutError(_gone(answers.absent))
        return await self._off(lambda: merging.broker(_json(answers), answers.absent, self._face.own))

    async def nodes(self, caller: Caller, names: list[str]) -> list[tuple[str, Row]]:
        """Return `node` and a row for each of these, or `gone`; `$cell/2/NAME` is one of cell 2.

        Those of cells that don't answer are left out. ForbiddenError.
        """
        of_cell: dict[int, list[str]] = {}
        for name in names:
            try:
                cell, rest = self._face.directory.split(name)
            except NoCellError:
                continue
            where = self._face.directory.cell_of(rest) if cell is None else cell
            of_cell.setdefault(where, []).append(rest)
        place = CellCall("GET", f"{PREFIX}/nodes", caller=caller)
        calls = {cell: replace(place, part=ListPart(tuple(each))) for cell, each in of_cell.items()}
        answers = await self._face.calls(calls)
        for each in answers.said.values():
            if each.status == 403:
                raise ForbiddenError(each.error)
        told: list[tuple[str, Row]] = []
        for cell, items in (await self._off(lambda: _json(answers.without_bad()))).items():
            rows = {str(row["name"]): self._placed(row, cell) for row in items["items"]}
            told += [
                ("node", rows[name]) if name in rows else ("gone", self._placed({"name": name}, cell))
                for name in of_cell[cell]
            ]
        return told

    # --- lists

    async def _list(self, plan: Plan, call: CellCall) -> CellAnswer:
        """Return a page of a list of all cells, or of the one that is said: keys of all, then rows of it."""
        query = {name: values[-1] for name, values in plan.query.items()}
        sort = query.get("sort") or "name"
        fields = [each.strip() for each in query.get("fields", "").split(",") if each.strip()]
        asked = [each for each in fields if each != routing.CELL]
        if sort.removeprefix("-") == routing.CELL:
            query["sort"] = "name"
        query["fields"] = ",".join([*asked, "identity"]) if fields else ""
        keyed = replace(call, query=urlencode(query), part=ListPart())
        answers = await self._face.each(keyed, None if plan.cell is None else [plan.cell])
        good = answers.without_bad()
        refusal = _refusal(answers)
        if not good.said or (refusal is not None and refusal.status in (400, 403)):
            return refusal or refused(503, _gone(answers.absent))
        good = replace(good, absent=_known(answers))
        offset, limit = int(query.get("offset") or 0), int(query.get("limit") or 100)
        items, total = await self._off(lambda: merging.page(_keys(good), sort, offset, limit))
        of_cell: dict[int, list[str]] = {}
        for cell, identity in items:
            of_cell.setdefault(cell, []).append(identity)
        rows = await self._face.calls(
            {cell: replace(keyed, part=ListPart(tuple(each))) for cell, each in of_cell.items()}
        )
        absent = good.absent | rows.without_bad().absent
        is_of_nodes = plan.path.rpartition("/")[2] in NODE_LISTS
        page = {"total": total, "offset": offset, "limit": limit, "absent": absent}

        def made() -> CellAnswer:
            found = dict(self._rows(rows.without_bad(), fields, is_of_nodes))
            shown = [found[each] for each in items if each in found]
            return _answer({"items": shown, **page}, absent)

        return await self._off(made)

    def _rows(
        self, answers: CellAnswers, fields: list[str], is_of_nodes: bool
    ) -> Iterator[tuple[tuple[int, str], Row]]:
        for cell, each in _json(answers).items():
            for row in each["items"]:
                whole = self._placed(row, cell) if is_of_nodes else {**row, routing.CELL: cell}
                shown = {name: whole.get(name) for name in dict.fromkeys(fields)} if fields else whole
                if ADDRESS in whole:
                    shown[ADDRESS] = whole[ADDRESS]
                yield (cell, str(row["identity"])), shown

    def _placed(self, row: Row, cell: int) -> Row:
        """Return a node's row with its cell, and with its address where its name alone doesn't lead there."""
        name = str(row["identity"] if "identity" in row else row["name"])
        strays = self._face.directory.cell_of(name) != cell
        return {**row, routing.CELL: cell, **({ADDRESS: f"$cell/{cell}/{name}"} if strays else {})}

    async def _off(self, function: Callable[[], Answer]) -> Answer:
        """Have a thread decode and encode what the cells say: the loop serves others meanwhile."""
        return await self._threads.run(function)


def _refusal(answers: CellAnswers) -> CellAnswer | None:
    """Return one of the refusals, that of the cell to which the name belongs before the others'."""
    bad = [each for _, each in sorted(answers.said.items()) if not each.is_good]
    return next(iter(sorted(bad, key=lambda each: MISDIRECTED in each.headers)), None)


def _merged(plan: Plan, answers: CellAnswers, own: int, absent: Mapping[int, str]) -> CellAnswer:
    said = _json(answers)
    if plan.by == "broker":
        return _answer({**merging.broker(said, absent, own), "absent": absent}, absent)
    if plan.by == "events":
        count = int(plan.query.get("count", ["100"])[-1])
        return _answer(merging.events(said, count), absent)
    return _answer({**merging.MERGES[plan.by](said), "absent": absent}, absent)


def _partly(plan: Plan, answers: CellAnswers) -> CellAnswer:
    """Say what was done in which cells, and why not in the others: it is to be repeated."""
    done = sorted(answers.said)
    merged = merging.MERGES[plan.by](_json(answers))
    where = ", ".join(map(str, done))
    error = f"done in {'cells' if len(done) > 1 else 'cell'} {where} only; {_gone(answers.absent)}"
    found = _answer({"error": error, **merged, "done": done, "absent": answers.absent}, answers.absent)
    return replace(found, status=PARTLY)


def _known(answers: CellAnswers) -> dict[int, str]:
    """Return why cells are missing; one that knows no such thing isn't."""
    unknown = {cell for cell, each in answers.said.items() if each.status == 404}
    return {cell: why for cell, why in answers.without_bad().absent.items() if cell not in unknown}


def _keys(answers: CellAnswers) -> dict[int, list[tuple[Any, str]]]:
    return {cell: each["keys"] for cell, each in _json(answers).items()}


def _json(answers: CellAnswers) -> dict[int, Any]:
    return {cell: each.json() for cell, each in sorted(answers.said.items())}


def _with_cell(found: CellAnswer, cell: int) -> CellAnswer:
    """Add the cell to an object that a cell answered with, and to each of the answers to `why`."""
    if (
        not found.is_good
        or not found.body
        or not found.headers.get("content-type", "").startswith("application/json")
    ):
        return found
    content = found.json()
    if isinstance(content, dict) and "error" not in content:
        for name in ("answers", "deadlocks"):
            if name in content:
                content[name] = [{**each, routing.CELL: cell} for each in content[name]]
        if not isinstance(content.get(routing.CELL), str):
            # That of a cluster has a name there.
            content[routing.CELL] = cell
    elif isinstance(content, list):
        content = [{**each, routing.CELL: cell} if isinstance(each, dict) else each for each in content]
    return replace(found, body=merging.encoded(content))


def _answer(content: object, absent: Mapping[int, str]) -> CellAnswer:
    headers = {"content-type": "application/json", **CellAnswers({}, dict(absent)).headers()}
    return CellAnswer(200, merging.encoded(content), headers)


def _several(name: str, cells: list[int]) -> str:
    which = " or ".join(f"cell={cell}" for cell in cells)
    return f"several cells have a '{name}': say {which}"


def _gone(absent: Mapping[int, str]) -> str:
    return "; ".join(f"cell {cell}: {reason}" for cell, reason in sorted(absent.items()))


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


async def _body(receive: Receive) -> bytes:
    """Read a request's body; ValueError where it is too large, ClientDisconnect where it breaks off."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST_BODY:
            raise ValueError("too large")
        if not message.get("more_body", False):
            return b"".join(parts)


def _response(found: CellAnswer) -> Response:
    kept = {name: value for name, value in found.headers.items() if name in (*KEPT, ABSENT)}
    kind = kept.pop("content-type", None)
    return Response(found.body, found.status, kept, kind)
