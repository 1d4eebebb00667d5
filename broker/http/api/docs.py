"""The OpenAPI document, and a page that renders it: three files of ours, and no request leaves the host."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request, Response

from broker.http.api.context import Context, Threaded, answer

FOLDER = Path(__file__).parent / "page"
# What the page may load: its own files and the document.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router = APIRouter(route_class=Threaded, include_in_schema=False)


@router.get("/openapi.json")
def document(context: Context, request: Request) -> Response:
    """Made when it is first asked for: that takes half a second, in which the loop goes on."""
    found: dict[str, object] = request.app.openapi()
    return answer(found)


def _file(name: str, media_type: str) -> Response:
    content = (FOLDER / name).read_bytes()
    return Response(content, headers={"Content-Security-Policy": POLICY}, media_type=media_type)


@router.get("/docs")
async def page() -> Response:
    """The page."""
    return _file("index.html", "text/html; charset=utf-8")


@router.get("/docs/docs.css")
async def style() -> Response:
    """What it looks like."""
    return _file("docs.css", "text/css; charset=utf-8")


@router.get("/docs/docs.js")
async def script() -> Response:
    """What renders the document."""
    return _file("docs.js", "text/javascript; charset=utf-8")
