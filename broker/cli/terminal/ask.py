"""Questions that several verbs ask a broker: listings, page by page, and its own operations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from broker.cli.terminal.printable import printable
from broker.errors import ElsewhereError, NotFoundError, OperatorError, SluiceError

if TYPE_CHECKING:
    from broker.client.request import Management

PREFIX = "org.sluice."
BROKER = PREFIX + "broker"
# Kinds of which each cell has the same.
OF_EACH_CELL = ("policy",)
# Operations that are about all cells, by the list in their answers.
EVERYWHERE = {"stop-producers": "nodes", "start-producers": "nodes", "apply": "changed"}
CELL = "cell"
# Kinds whose ids each cell counts for itself, and where rows of these have such an id.
OF_CLIENTS = ("connection", "session", "link")
IDS = ("identity", "connection")

Row = dict[str, object]


class AnswerError(SluiceError):
    """The broker's answer is not what this version understands."""


def connect(args: argparse.Namespace) -> Management:
    """The broker the arguments mean; Proton is loaded only now."""
    from broker.client.request import Management

    return Management(args.broker)


def rows(management: Management, kind: str, attributes: Sequence[str]) -> list[Row]:
    """These attributes of every entity of a kind, where there are several cells with its `cell`.

    Of one that can't be asked there are none, which is said on standard error.
    """
    found = _rows_in(management, kind, attributes)
    others = [] if kind in OF_EACH_CELL else management.others()
    if others:
        found = _of_cell(management.own_cell, kind, found)
    for cell in others:
        with _noted(cell):
            found += _of_cell(cell, kind, management.ask_at(cell, lambda at: _rows_in(at, kind, attributes)))
    return found


def cells(management: Management) -> int:
    """How many cells the broker has."""
    _rows_in(management, "broker", ["name"])
    return 1 + len(management.others())


def broker(management: Management, attributes: Sequence[str]) -> Row:
    """These attributes of the broker; over several cells, numbers are added up and lists joined."""
    found = rows(management, "broker", attributes)
    return {name: _joined(name, [row[name] for row in found]) for name in attributes}


def _joined(name: str, values: Sequence[object]) -> object:
    if isinstance(values[0], list):
        listed = [each for value in values for each in cast("list[object]", value)]
        return [each for at, each in enumerate(listed) if each not in listed[:at]]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return values[0]
    return max(numbers) if name == "uptime_s" else sum(numbers)


def each(management: Management, name: str, /, **arguments: object) -> dict[int, Row]:
    """What each cell answers one of the broker's own operations with; cells that know no such thing are left
    out. Of one that can't be asked there is nothing, which is said on standard error.
    """
    found, faults = management.call_each(name, BROKER, arguments)
    if not found:
        # A cell that couldn't be asked may know it; else the one to which such a name belongs has the word.
        raise min(faults.values(), key=_how_unknown)
    for cell, fault in faults.items():
        if not isinstance(fault, NotFoundError):
            _note(cell, fault)
    return {cell: fields(response.body) for cell, response in found.items()}


def _how_unknown(fault: SluiceError) -> int:
    return isinstance(fault, NotFoundError) + isinstance(fault, ElsewhereError)


def of_client(management: Management, identity: str) -> tuple[Management, str]:
    """Whom to ask about a connection or link by its id, and by which: `2:c12` is c12 of cell 2.

    Each cell counts its own, so that OperatorError asks for the cell where there are several.
    """
    number, mark, rest = identity.partition(":")
    if mark and number.isascii() and number.isdecimal():
        return management.at(int(number)), rest
    if cells(management) > 1:
        text = f"{identity}: each cell has connections of its own: say 0:{identity} for that of cell 0"
        raise OperatorError(text)
    return management, identity


def _of_cell(cell: int, kind: str, found: list[Row]) -> list[Row]:
    """Rows with their cell, which ids of clients and their links bear too."""
    ids = [name for name in IDS if kind in OF_CLIENTS and found and name in found[0]]
    return [{**row, **{name: f"{cell}:{row[name]}" for name in ids}, CELL: cell} for row in found]


@contextmanager
def _noted(cell: int) -> Iterator[None]:
    """Say of a cell that it can't be asked, and go on."""
    from broker.client.errors import ClientError

    try:
        yield
    except ClientError as fault:
        _note(cell, fault)


def _note(cell: int, fault: SluiceError) -> None:
    print(f"note: cell {cell} is left out: {printable(str(fault))}", file=sys.stderr)


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
    """The first so many of a kind of node in an order, of each cell, and how many there are in all."""
    found, total = _first_in(management, kind, attributes, count, sort, pattern)
    others = management.others()
    if others:
        found = _of_cell(management.own_cell, kind, found)
    for cell in others:
        with _noted(cell):
            more, there = management.ask_at(
                cell, lambda at: _first_in(at, kind, attributes, count, sort, pattern)
            )
            found, total = found + _of_cell(cell, kind, more), total + there
    return found, total


def _first_in(
    management: Management, kind: str, attributes: Sequence[str], count: int, sort: str, pattern: str
) -> tuple[list[Row], int]:
    """The same of one cell."""
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
    if name not in EVERYWHERE:
        return fields(management.call(name, type=BROKER, body=arguments).body)
    found, faults = management.call_each(name, BROKER, arguments)
    if not found:
        raise next(iter(faults.values()))
    if faults:
        where = ", ".join(map(str, found))
        reasons = "; ".join(f"cell {cell}: {fault}" for cell, fault in faults.items())
        raise OperatorError(f"done in {'cells' if len(found) > 1 else 'cell'} {where} only; {reasons}")
    one, *more = [fields(response.body) for response in found.values()]
    listed = EVERYWHERE[name]
    lists = [cast("list[object]", answer[listed]) for answer in (one, *more)]
    return {**one, listed: [item for items in lists for item in items]}


def fields(body: object) -> Row:
    """A response's map; AnswerError if it is none."""
    if not isinstance(body, dict):
        raise AnswerError("the broker's answer is not a map")
    return body
