"""The console's files: read once at start, served from memory, and nothing else of the disk.

A request is looked up in a table of whole paths, so that no path can lead anywhere. What the files
need to know of the broker they ask `/api/v1` for.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"
# Beside those of every answer: scripts and styles are files of ours, and nobody frames the console.
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
}


def routes() -> list[Route]:
    """`/` and `/console/...`, one route for each file."""
    found = dict(_found(files("broker.http") / "console", ""))
    table = {f"/console/{name}": content for name, content in found.items() if not name.endswith(INDEX)}
    return [_route(path, *content) for path, content in {"/": found[INDEX], **table}.items()]


def _found(folder: Traversable, prefix: str) -> list[tuple[str, tuple[str, bytes]]]:
    """Every file of a type that is served: its name below the console's folder, its type and its content."""
    here: list[tuple[str, tuple[str, bytes]]] = []
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        suffix = each.name[each.name.rfind(".") :]
        if each.is_dir():
            here += _found(each, f"{prefix}{each.name}/")
        elif suffix in TYPES:
            here.append((prefix + each.name, (TYPES[suffix], each.read_bytes())))
    return here


def _route(path: str, content_type: str, content: bytes) -> Route:
    tag = f'"{sha256(content).hexdigest()[:16]}"'

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            # With all its headers: they take the place of those that the browser has kept.
            return Response(None, 304, {**HEADERS, "ETag": tag})
        return Response(content, 200, {**HEADERS, "ETag": tag}, content_type)

    return Route(path, answer)
