"""Lists: which part of what is asked for, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

from broker.http.api.context import RequestContext
from broker.http.api.listpart import ListPart
from broker.manage.attributes import PREFIX
from broker.manage.listing import ROWS_AT_ONCE, at_once, check_columns
from broker.manage.ordering import matcher, ordered

MOST_ITEMS = 1000
Item = TypeVar("Item")
Row = dict[str, object]


class Wanted(BaseModel):
    """The parameters of every list."""

    offset: int = Field(0, ge=0, le=1 << 31, description="how many to leave out at the beginning")
    limit: int = Field(100, ge=1, le=MOST_ITEMS, description="how many at most")
    sort: str = Field("name", max_length=100, description="an attribute, with `-` in front from the greatest")
    filter: str = Field("", max_length=255, description="part of the name, or a pattern with `*`")
    fields: str = Field("", max_length=4000, description="attributes to show, with commas between; all")

    @property
    def columns(self) -> list[str]:
        """The attributes to show, each once; none for all."""
        return list(dict.fromkeys(name for name in map(str.strip, self.fields.split(",")) if name))

    @property
    def order(self) -> tuple[str, bool]:
        """The attribute to sort by, and whether the greatest comes first."""
        return self.sort.removeprefix("-"), self.sort.startswith("-")


List = Annotated[Wanted, Query()]


def nodes(
    context: RequestContext, kinds: Sequence[str], wanted: Wanted, topic: str = ""
) -> dict[str, object]:
    """A page of nodes, or of those of the first kind that take from a topic: only those shown are looked at
    as a whole.
    """
    attribute, downwards = wanted.order
    types = [PREFIX + kind for kind in kinds]
    check_columns(types, [attribute, *wanted.columns])
    if context.part is not None and context.part.names is not None:
        return _page(_rows(context, context.part.names, wanted), 0, wanted)
    matches = matcher(wanted.filter)
    known = context.ask(
        lambda model: model.listing.of_topic(topic, kinds[0]) if topic else model.listing.nodes(kinds)
    )
    found = [name for name in known if matches(name)]
    keys: list[object] = []
    if attribute == "name":
        keys = [*found]
    else:
        for part in _slices(found, at_once(attribute)):
            keys += context.ask(lambda model, part=part: model.listing.keys(part, attribute))  # type: ignore[misc]
    if context.part is not None:
        return {"keys": list(zip(keys, found, strict=True))}
    pairs = ordered(list(zip(keys, found, strict=True)), lambda pair: pair[0], downwards)
    page = [name for _, name in pairs[wanted.offset : wanted.offset + wanted.limit]]
    return _page(_rows(context, page, wanted), len(found), wanted)


def _rows(context: RequestContext, names: Sequence[str], wanted: Wanted) -> list[Row]:
    """Rows of these nodes, those that are gone left out."""
    items: list[Row] = []
    for part in _slices(names, ROWS_AT_ONCE):
        items += context.ask(lambda model, part=part: model.listing.rows(part, wanted.columns))  # type: ignore[misc]
    return items


def others(
    context: RequestContext,
    kind: str,
    wanted: Wanted,
    only: Callable[[Row], bool] = lambda row: True,
    node: str = "",
) -> dict[str, object]:
    """A page of entities that are no nodes; of links, those of one node or of all."""
    attribute, downwards = wanted.order
    type_ = PREFIX + kind
    check_columns([type_], [attribute, *wanted.columns])
    matches = matcher(wanted.filter)
    views = context.ask_in_parts(lambda model: model.listing.others(type_, node))
    rows = [context.model.listing.row(type_, view) for view in views]
    found = [row for row in rows if matches(str(row["name"])) and only(row)]
    if context.part is not None:
        return _part(found, attribute, wanted, context.part)
    rows = ordered(found, lambda row: row.get(attribute), downwards)
    page = rows[wanted.offset : wanted.offset + wanted.limit]
    if wanted.columns:
        page = [{name: row.get(name) for name in wanted.columns} for row in page]
    return _page(page, len(found), wanted)


def _part(found: list[Row], attribute: str, wanted: Wanted, part: ListPart) -> dict[str, object]:
    if part.names is None:
        return {"keys": [(row.get(attribute), row["identity"]) for row in found]}
    names = frozenset(part.names)
    items = [row for row in found if row["identity"] in names]
    if wanted.columns:
        items = [{name: row.get(name) for name in wanted.columns} for row in items]
    return _page(items, 0, wanted)


def _page(items: list[Row], total: int, wanted: Wanted) -> dict[str, object]:
    return {"items": items, "total": total, "offset": wanted.offset, "limit": wanted.limit}


def _slices(found: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for begin in range(0, len(found), size):
        yield found[begin : begin + size]
