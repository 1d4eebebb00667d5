"""A page that renders the OpenAPI document: three small files of ours, and no request leaves the host."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response

FOLDER = Path(__file__).parent / "page"
# What the page may load: its own files and the document.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router = APIRouter(include_in_schema=False)


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
