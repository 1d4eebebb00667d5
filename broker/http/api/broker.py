"""The broker as a whole."""

from __future__ import annotations

from fastapi import APIRouter, Response

from broker.http.api.context import Context, Threaded, answer
from broker.http.api.shapes import Broker

router = APIRouter(route_class=Threaded, tags=["broker"])


@router.get("/broker", response_model=Broker)
def broker(context: Context) -> Response:
    """What the broker is, holds and has done."""
    return answer(context.broker())
