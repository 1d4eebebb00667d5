"""A node's last minutes, with the lines they are drawn against, and the whole broker's."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict

from broker.http.api.context import Context, Name, Threaded, answer
from broker.manage.authorized import AuthorizedModel
from broker.manage.samples import ROWS

router = APIRouter(route_class=Threaded, tags=["seeing"])

THRESHOLDS = (
    *("max_count", "max_size", "flow_stop_count", "flow_resume_count"),
    *("flow_stop_size", "flow_resume_size"),
)


class Row(TypedDict):
    """A second; `time` in Unix seconds."""

    time: float
    depth_msgs: int
    depth_bytes: int
    stopped: bool
    rate_in: float
    rate_out: float


class History(TypedDict):
    """A row a second, the oldest first; thresholds as they are now, 0 for none."""

    name: str
    interval_s: int
    thresholds: dict[str, Any]
    rows: list[Row]


class Flow(TypedDict):
    """A second of the whole broker; `time` in Unix seconds, messages a second."""

    time: float
    rate_in: float
    rate_out: float


class BrokerHistory(TypedDict):
    """A row a second, the oldest first."""

    interval_s: int
    rows: list[Flow]


@router.get("/history", response_model=BrokerHistory)
def broker_history(
    context: Context,
    seconds: Annotated[int, Query(ge=1, le=ROWS, description="how far back at most")] = ROWS,
) -> Response:
    """What came in and went out in the last minutes, of all nodes together."""
    found = context.ask(lambda model: model.queries.broker_history(seconds))
    epoch_ns = context.model.process.epoch_ns
    rows = [
        {"time": round((epoch_ns + at_ns) / 1e9, 3), "rate_in": round(came, 3), "rate_out": round(went, 3)}
        for at_ns, came, went in found
    ]
    return answer({"interval_s": 1, "rows": rows})


@router.get("/history/{name}", response_model=History)
def history(
    context: Context,
    name: Name,
    seconds: Annotated[int, Query(ge=1, le=ROWS, description="how far back at most")] = ROWS,
) -> Response:
    """Depth, rates and stops of a queue, topic or subscription in the last minutes."""

    def told(model: AuthorizedModel) -> tuple[object, list[Any]]:
        node, samples = model.queries.history(name, seconds)
        return node.settings, samples

    settings, samples = context.ask(told)
    epoch_ns = context.model.process.epoch_ns
    rows = [
        {
            "time": round((epoch_ns + each.at_ns) / 1e9, 3),
            "depth_msgs": each.depth_msgs,
            "depth_bytes": each.depth_bytes,
            "stopped": each.stopped,
            "rate_in": round(each.rate_in, 3),
            "rate_out": round(each.rate_out, 3),
        }
        for each in samples
    ]
    thresholds = {each: getattr(settings, each) for each in THRESHOLDS}
    return answer({"name": name, "interval_s": 1, "thresholds": thresholds, "rows": rows})
