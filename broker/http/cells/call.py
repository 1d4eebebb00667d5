"""A request that one cell answers for another, or for itself, and its answer.

It is a request of the ordinary API or of a page, and its caller is settled already: the cell that the client
reached has seen to it. Between cells it is HTTP/1.1 on a Unix socket that only the broker's user can open.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from broker.http.api.listpart import PART, ListPart
from broker.http.server.authenticator import CALLER, NOBODY, Caller
from broker.security.identity import Identity

log = logging.getLogger("sluice.http")

# A cell that says nothing for so long is silent; one that works on an answer says so more often. All cells of
# a machine have one monotonic clock.
SILENT_S = 5.0
# Who asks, and what for; no client's request ever has it.
HEADER = b"sluice-call"
JSON = b"application/json"
# Of an answer; a page of metrics of 100,000 queues takes half as much.
MOST_BYTES = 256 << 20


class LateCallError(Exception):
    """Who asked has given up by now: what a cell was asked while it was stopped isn't done afterwards."""


class CellSilentError(Exception):
    """A cell doesn't answer; the text says how."""


@dataclass(frozen=True, slots=True)
class CellCall:
    """A request to a cell; ``path`` and ``query`` are percent-encoded.

    ``part`` is there where only a part of a list is wanted, and ``session`` where the call is about a login
    that the cell keeps, by its token.
    """

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    caller: Caller = NOBODY
    part: ListPart | None = None
    session: str = ""

    @property
    def target(self) -> str:
        """Path and query as a request line has them."""
        return f"{self.path}?{self.query}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class CellAnswer:
    """Status, headers by their names in small letters, and body."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether it is done, or known."""
        return self.status < 300

    def json(self) -> Any:
        """Return the body as JSON; ValueError where it is none."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Why not, as the API or a page says it."""
        try:
            found = self.json()
        except ValueError:
            return self.body[:500].decode("utf-8", "replace").strip()
        return str(found.get("error", "")) if isinstance(found, dict) else ""


def written(call: CellCall) -> list[tuple[bytes, bytes]]:
    """Return the headers that a call has on its way to another cell."""
    identity = {**asdict(call.caller.identity), "groups": sorted(call.caller.identity.groups)}
    told: dict[str, Any] = {"identity": identity, "by": call.caller.by, "until": time.monotonic() + SILENT_S}
    if call.session:
        told["session"] = call.session
    if call.part is not None:
        told["part"] = "keys" if call.part.names is None else "names"
    return [
        (b"host", b"cell"),
        (HEADER, json.dumps(told).encode()),
        (b"content-length", str(len(body_of(call))).encode()),
        *call.headers,
    ]


def body_of(call: CellCall) -> bytes:
    """Return the body that a call has on its way: the names where rows of these are wanted."""
    if call.part is not None and call.part.names is not None:
        return json.dumps(call.part.names).encode()
    return call.body


def read(method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes) -> CellCall:
    """Read a call that another cell has written; ValueError where it is none."""
    told = next((json.loads(value) for name, value in headers if name == HEADER), None)
    if not isinstance(told, dict):
        raise ValueError("a request without its caller")
    if time.monotonic() > float(told["until"]):
        raise LateCallError
    identity = Identity(**{**told["identity"], "groups": frozenset(told["identity"]["groups"])})
    part = None
    if "part" in told:
        part = ListPart(None if told["part"] == "keys" else tuple(json.loads(body)))
        body = b""
    path, _, query = target.partition("?")
    kept = tuple((name, value) for name, value in headers if name in (b"if-match", b"content-type"))
    caller = Caller(identity, str(told["by"]))
    return CellCall(method, path, query, body, kept, caller, part, str(told.get("session", "")))


async def answered(app: ASGIApp, call: CellCall) -> CellAnswer:
    """Have an application of this process answer a call, and take the answer whole."""
    state: dict[str, Any] = {} if call.part is None else {PART: call.part}
    length = [(b"content-length", str(len(call.body)).encode())] if call.body else []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": unquote(call.path),
        "raw_path": call.path.encode("latin-1"),
        "query_string": call.query.encode("latin-1"),
        "root_path": "",
        "headers": [*call.headers, *length],
        "client": None,
        "server": None,
        "state": state,
        CALLER: call.caller,
    }
    given = [{"type": "http.request", "body": call.body, "more_body": False}]
    never = asyncio.Event()
    status, headers, parts = 500, {}, []

    async def receive() -> Message:
        if given:
            return given.pop()
        await never.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception:
        # Where it has answered already, that it has failed.
        log.exception("HTTP %s failed", call.path)
        status = max(status, 500)
    return CellAnswer(status, b"".join(parts), headers)
