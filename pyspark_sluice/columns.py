"""The columns of a batch, all messages at once: sections are walked, and then each column's values read.

Every row has the values that ``rows`` gives it. A row of which that isn't certain is unusual and is left to
``rows``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark.sql.types import MapType, StructType

from . import convert
from .incoming import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    BODY,
    COLUMNS,
    HEADER,
    PLACE,
    PROPERTIES,
)
from .layouts import map_pieces
from .octets import Ints, Octets
from .places import Places, Rank, UnusualError, fields, sections
from .readers import Piece, ValueKind, spread, values
from .rows import converter_of

_RANKS = {
    HEADER: Rank.HEADER,
    ANNOTATIONS: Rank.ANNOTATIONS,
    PROPERTIES: Rank.PROPERTIES,
    APPLICATION_PROPERTIES: Rank.APPLICATION_PROPERTIES,
    BODY: Rank.BODY,
}
# Constructors of binary, strings and symbols whose bytes are the value of a column as they are.
_RAW_BODY, _RAW_BYTES = (0xA0, 0xA1, 0xB0, 0xB1), (0xA0, 0xB0)
_RAW_FIELD, _RAW_ITEM = (0xA1, 0xA3), (0xA1,)


class Columns:
    """Those of ``schema`` that come from messages; ``arrow`` is the same schema as Arrow's."""

    def __init__(self, schema: StructType, arrow: pa.Schema) -> None:
        self._lists: dict[Rank, dict[int, tuple[str, ValueKind]]] = {}
        self._maps: list[tuple[Rank, str, ValueKind, pa.MapType]] = []
        self._body: tuple[str, ValueKind] | None = None
        for field, wanted in zip(arrow, schema.fields, strict=True):
            if field.name in PLACE:
                continue
            column = COLUMNS[field.name]
            rank = _RANKS[column.section]
            if rank == Rank.BODY:
                self._body = field.name, ValueKind(field.type, convert.payload, _RAW_BODY)
            elif pa.types.is_map(field.type):
                made = convert.converter(cast(MapType, wanted.dataType).valueType)
                kind = ValueKind(field.type.item_type, made, _raw(made, _RAW_ITEM))
                self._maps.append((rank, field.name, kind, field.type))
            else:
                made = converter_of(wanted.dataType)
                kind = ValueKind(field.type, made, _raw(made, _RAW_FIELD), column.default)
                self._lists.setdefault(rank, {})[column.index] = field.name, kind

    def arrays(self, octets: Octets, starts: Ints, ends: Ints) -> dict[str, pa.Array]:
        """Each column's array, for the messages between the offsets, which ascend. Raises UnusualError with
        the positions in ``starts`` of messages that have to be read one after the other."""
        found = sections(octets, starts, ends)
        batch = _Batch(octets, len(starts))
        for rank, wanted in self._lists.items():
            batch.add_list(found[rank], wanted)
        for rank, name, kind, type_ in self._maps:
            batch.add_map(found[rank], name, kind, type_)
        if self._body is not None:
            batch.add(self._body[0], found[Rank.BODY], self._body[1])
        return batch.finished()


class _Batch:
    """Arrays of ``count`` rows, by name, and the rows that turned out to be unusual."""

    def __init__(self, octets: Octets, count: int) -> None:
        self._octets = octets
        self._count = count
        self._arrays: dict[str, pa.Array] = {}
        self._unusual: list[Ints] = []

    def add_list(self, lists: Places | None, wanted: dict[int, tuple[str, ValueKind]]) -> None:
        """The columns that are fields, by index, of a section's lists."""
        found: Sequence[Places | None] = ()
        if lists is not None:
            with self._noting():
                found = fields(self._octets, lists, [index in wanted for index in range(max(wanted) + 1)])
        for index, (name, kind) in wanted.items():
            self.add(name, found[index] if found else None, kind)

    def add(self, name: str, places: Places | None, kind: ValueKind) -> None:
        """A column of which a row has one value at most."""
        pieces: list[Piece] = []
        if places is not None:
            with self._noting():
                pieces = [(places.rows, values(self._octets, places, kind))]
        self._arrays[name] = spread(self._count, pieces, kind.default)

    def add_map(self, places: Places | None, name: str, kind: ValueKind, type_: pa.MapType) -> None:
        """A column that is a whole section."""
        pieces: list[Piece] = []
        if places is not None:
            with self._noting():
                pieces = map_pieces(self._octets, places, kind, type_)
        self._arrays[name] = spread(self._count, pieces, pa.nulls(1, type_))

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Go on where something is unusual, so that all such rows are found in one walk."""
        try:
            yield
        except UnusualError as error:
            self._unusual.append(error.rows)

    def finished(self) -> dict[str, pa.Array]:
        """All of them. Raises UnusualError for what was met on the way."""
        if self._unusual:
            raise UnusualError(np.unique(np.concatenate(self._unusual)))
        return self._arrays


def _raw(made: convert.Convert, of_text: tuple[int, ...]) -> tuple[int, ...]:
    if made is convert.text:
        return of_text
    return _RAW_BYTES if made is convert.binary else ()
