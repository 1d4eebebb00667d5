"""Which cells a request of the API concerns, by its method, path and query alone. Pure.

`?cell=2` asks cell 2, whatever it is about. `$cell/2/NAME` in place of a node's name is the node NAME of
cell 2, as in AMQP's addresses. Everything else follows from the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from broker.http.api.guard import PREFIX

# By the cell that was reached, since all have the same; or by no other, since it is about the request itself.
HERE, OWN = "here", "own"
# By the cell of the name in the path, or of that field of the body.
OWNER, OWNER_OF = "owner", "owner of"
# By whichever cell has the connection or link of that id, in the path or in the body.
FIND, FIND_OF = "find", "find of"
# By the one that the request says, since it is about that cell itself.
SAID = "said"
# Pages of a list of all cells.
LIST = "list"
# By all cells, whose answers become one.
EACH = "each"
CELL = "cell"


class NoCellError(Exception):
    """The request names a cell that isn't there, or a node without saying which."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A row of the table: requests, how they are answered, and by what: a merge, a field, a list's path."""

    methods: str
    pattern: re.Pattern[str]
    how: str
    by: str = ""


def _row(methods: str, pattern: str, how: str, by: str = "") -> PlanRow:
    return PlanRow(methods, re.compile(pattern), how, by)


_KINDS = "(?:queues|topics|subscriptions)"
TABLE = (
    _row("GET POST DELETE", r"/(?:session|live|openapi\.json|docs.*)", OWN),
    _row("GET", r"/(?:queues|topics|subscriptions|nodes)", LIST),
    _row("GET", r"/(?:connections|sessions|links|bindings|bridges|routes|channels)", LIST),
    _row("POST", r"/(?:queues|topics)", OWNER_OF, "name"),
    _row("GET PATCH DELETE POST", rf"/{_KINDS}/([^/]+)(?:/.*)?", OWNER),
    _row("POST DELETE", r"/bindings", OWNER_OF, "source"),
    _row("POST DELETE", r"/bridges", OWNER_OF, "from"),
    _row("GET", r"/(?:history|explain)/(.+)", OWNER),
    _row("POST", r"/effect", OWNER_OF, "name"),
    _row("GET DELETE", r"/connections/([^/]+)", FIND, "/connections"),
    _row("DELETE", r"/links/([^/]+)", FIND, "/links"),
    _row("POST", r"/trace", FIND_OF, "/connections"),
    _row("GET", r"/broker", EACH, "broker"),
    _row("GET", r"/holds", EACH, "holds"),
    _row("POST", r"/producers/(?:stop|start)", EACH, "nodes"),
    _row("POST", r"/(?:policies/apply|reload)", EACH, "changed"),
    _row("POST", r"/cluster/move", SAID),
    _row("PUT", r"/log-levels", EACH, "levels"),
    _row("GET", r"/events", EACH, "events"),
    _row("GET", r"/why(?:/(.*))?", EACH, "answers"),
    _row("GET", r"/deadlocks", EACH, "deadlocks"),
    _row("GET", r"/history", EACH, "history"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a request is answered. ``cell`` is the one that is asked, None where several are or it isn't known.

    ``path`` and ``query`` are what the cells are asked; ``name`` is the name or id in the path.
    """

    how: str
    path: str
    query: Mapping[str, list[str]]
    by: str = ""
    cell: int | None = None
    name: str = ""
    # Whether the request says which cell it means.
    is_said: bool = False

    @property
    def search(self) -> str:
        """The query as the cells are asked it."""
        return urlencode(self.query, doseq=True)


def planned(method: str, path: str, search: str, directory: CellNames) -> Plan:
    """Return how a request is answered; ``path`` is as it stands in the request. NoCellError."""
    query: dict[str, list[str]] = {}
    for key, value in parse_qsl(search, keep_blank_values=True):
        query.setdefault(key, []).append(value)
    said = query.pop(CELL, None)
    cell = None if said is None else directory.number(said[-1])
    is_said = said is not None
    for key in ("node", "topic"):
        if key in query and path != f"{PREFIX}/live":
            named, rest = directory.split(query[key][-1])
            if named is not None:
                cell, query[key] = named, [rest]
    row, begin, end = _found(method, path.removeprefix(PREFIX))
    if row.how == SAID and cell is None:
        raise NoCellError("cell: say which one, by ?cell=N or --cell N")
    name = unquote(path[begin + len(PREFIX) : end + len(PREFIX)]) if end else ""
    if row.how == OWNER or (row.by == "answers" and name):
        named, rest = directory.split(name)
        if named is not None:
            path = path[: begin + len(PREFIX)] + quote(rest, safe="") + path[end + len(PREFIX) :]
            cell, name, is_said = named, rest, True
        elif cell is None and row.how == OWNER:
            cell = directory.cell_of(name)
    return Plan(row.how, path, query, row.by, cell, name, is_said)


def _found(method: str, path: str) -> tuple[PlanRow, int, int]:
    """Return the row of a request, and where in the path its name begins and ends."""
    for row in TABLE:
        found = row.pattern.fullmatch(path) if method in row.methods.split() else None
        if found is not None:
            return (row, *found.span(1)) if row.pattern.groups and found.group(1) else (row, 0, 0)
    return PlanRow("", re.compile(""), HERE), 0, 0


@dataclass(frozen=True, slots=True)
class CellNames:
    """Where nodes are: ``cell_of`` tells the cell of a name, ``split_address`` takes `$cell/2/NAME` apart."""

    own: int
    cells: int
    cell_of: Callable[[str], int]
    split_address: Callable[[str], tuple[int | None, str]]

    def number(self, text: str) -> int:
        """Read the number of a cell; NoCellError where there is none."""
        if text.isascii() and text.isdecimal() and len(text) < 6 and int(text) < self.cells:
            return int(text)
        raise NoCellError(f"cell: there are 0 to {self.cells - 1}")

    def split(self, address: str) -> tuple[int | None, str]:
        """Split `$cell/2/NAME` into its cell and the name; (None, the address) for any other. NoCellError."""
        try:
            return self.split_address(address)
        except ValueError as fault:
            raise NoCellError(str(fault)) from fault

    def of_body(self, body: dict[str, Any], field: str) -> tuple[int | None, bool]:
        """Return the cell of the node that a field of the body names, None where it names none, and whether
        the name says which cell, which is taken out of it.
        """
        name = body.get(field)
        if not isinstance(name, str):
            return None, False
        cell, rest = self.split(name)
        if cell is None:
            return self.cell_of(name), False
        body[field] = rest
        return cell, True
