"""Questions that several verbs ask a broker: listings, page by page, and its own operations."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from broker.errors import SluiceError

if TYPE_CHECKING:
    from broker.client.request import Management

PREFIX = "org.sluice."
BROKER = PREFIX + "broker"
# Kinds of which each cell has the same, or one of its own.
OF_EACH_CELL = ("broker", "policy")
# Operations that are about all cells, by the list in their answers.
EVERYWHERE = {"stop-producers": "nodes", "start-producers": "nodes", "apply": "changed"}

Row = dict[str, object]


class AnswerError(SluiceError):
    """The broker's answer is not what this version understands."""


def connect(args: argparse.Namespace) -> Management:
    """The broker the arguments mean; Proton is loaded only now."""
    from broker.client.request import Management

    return Management(args.broker)


def rows(management: Management, kind: str, attributes: Sequence[str]) -> list[Row]:
    """These attributes of every entity of a kind, in all cells but of what each cell has for itself."""
    found = _rows_in(management, kind, attributes)
    if kind not in OF_EACH_CELL:
        for other in management.others():
            found += _rows_in(other, kind, attributes)
    return found


def _rows_in(management: Management, kind: str, attributes: Sequence[str]) -> list[Row]:
    """The same of one cell; it answers in pages."""
    found: list[Row] = []
    while True:
        response = management.call(
            "QUERY", type=PREFIX + kind, body={"attributeNames": list(attributes)}, offset=len(found)
        )
        page = fields(response.body)
        results = cast("list[list[object]]", page["results"])
        found += [dict(zip(attributes, result, strict=True)) for result in results]
        if not results or len(found) >= response.total:
            return found


def first(
    management: Management, kind: str, attributes: Sequence[str], count: int, sort: str, pattern: str
) -> tuple[list[Row], int]:
    """The first so many of a kind of node in an order, and how many there are; the broker sorts them."""
    body = {"attributeNames": list(attributes)}
    found: list[Row] = []
    while True:
        window = {"offset": len(found), "count": count - len(found)}
        order: dict[str, Any] = {"sort": sort, "filter": pattern, **window}
        response = management.call("QUERY", type=PREFIX + kind, body=body, **order)
        results = cast("list[list[object]]", fields(response.body)["results"])
        found += [dict(zip(attributes, result, strict=True)) for result in results]
        if not results or len(found) >= min(count, response.total):
            return found, response.total


def entity(
    management: Management, verb: str, kind: str, name: str, attributes: Mapping[str, object] | None = None
) -> Row:
    """CREATE, READ, UPDATE or DELETE of one entity; what the broker says of it now."""
    # Proton leaves a body of None out, and what has no body is no message (§3.2).
    return fields(management.call(verb, type=PREFIX + kind, name=name, attributes=attributes or {}).body)


def operation(management: Management, name: str, /, **arguments: object) -> Row:
    """The map one of the broker's own operations answers with; of those about all cells, one for all."""
    answer = fields(management.call(name, type=BROKER, body=arguments).body)
    if name in EVERYWHERE:
        for other in management.others():
            more = fields(other.call(name, type=BROKER, body=arguments).body)
            listed = EVERYWHERE[name]
            answer[listed] = [*cast("list[object]", answer[listed]), *cast("list[object]", more[listed])]
    return answer


def fields(body: object) -> Row:
    """A response's map; AnswerError if it is none."""
    if not isinstance(body, dict):
        raise AnswerError("the broker's answer is not a map")
    return body
