"""Encoded messages as Arrow record batches.

Messages lie one behind the other in a single buffer and are read in place; what no column asks for is stepped
over. Measured by ``make bench-spark``: it is the executors' whole cost of a row.

1. All messages are walked and read at once (``columns``).
2. Those that are unusual are left out, and the others walked again: after a few times, or where many are
   unusual, it isn't worth it.
3. The unusual ones are read one after the other (``rows``) and put where they belong. A malformed message is
   found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .arrays import array_of
from .columns import Columns
from .incoming import PLACE, default_schema
from .octets import MOST_BYTES, WORD, Ints, Octets
from .places import UnusualError
from .rows import Filling
from .unpack import MalformedError

# PySpark 4.0 asks for none: there it is always this one.
_ZONE: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}

# What a source has where its reader names no schema.
SCHEMA = default_schema()
# Of columns that come from no message.
NOTHING: Mapping[str, pa.Array] = {}
# Fewer messages are read one after the other (bench/sparksource.py), as are all where more than this part is
# unusual, or where there are still such ones after so many walks.
FEWEST_ROWS, MOST_UNUSUAL, WALKS = 100, 0.5, 5

MessageSizes = Sequence[int] | npt.NDArray[np.integer[Any]]


class Decoder:
    """Record batches of one schema, which ``incoming.check`` has let pass.

    ``lenient``: a message that can't be read is a row of nulls; otherwise it raises MalformedError.
    """

    def __init__(self, schema: StructType, *, lenient: bool = False) -> None:
        self.schema = schema
        self.arrow = to_arrow_schema(schema, **_ZONE)
        self.lenient = lenient
        self._columns = Columns(schema, self.arrow)

    def batch(
        self, buffer: bytes, sizes: MessageSizes, beside: Mapping[str, pa.Array] = NOTHING
    ) -> pa.RecordBatch:
        """The messages in ``buffer``, as long as ``sizes`` says in bytes, as one record batch.

        ``beside`` has the columns of ``incoming.PLACE``, for those of them that the schema has.
        """
        found = self._arrays(buffer, np.asarray(sizes, np.int64))
        arrays = [beside[field.name] if field.name in PLACE else found[field.name] for field in self.arrow]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _arrays(self, buffer: bytes, sizes: Ints) -> dict[str, pa.Array]:
        count = len(sizes)
        ends = np.cumsum(sizes)
        usual, arrays = self._at_once(buffer, sizes, ends)
        if len(usual) == count and count:
            return arrays
        unusual = np.delete(np.arange(count), usual)
        spans = zip(unusual.tolist(), (ends - sizes)[unusual].tolist(), ends[unusual].tolist(), strict=True)
        others = self._one_by_one(buffer, spans, len(unusual), count)
        if not len(usual):
            return others
        order = np.empty(count, np.int64)
        order[np.concatenate([usual, unusual])] = np.arange(count)
        return {
            name: pa.concat_arrays([array, others[name]]).take(pa.array(order))
            for name, array in arrays.items()
        }

    def _at_once(self, buffer: bytes, sizes: Ints, ends: Ints) -> tuple[Ints, dict[str, pa.Array]]:
        """The rows that are usual, and their columns; no row where it isn't worth it."""
        count = len(sizes)
        rows = np.arange(count)
        if (
            count < FEWEST_ROWS
            or not WORD <= len(buffer) <= MOST_BYTES
            or sizes.min() < 0
            or sizes.max() > len(buffer)
            or ends[-1] > len(buffer)
        ):
            return rows[:0], {}
        octets = Octets(buffer)
        for _ in range(WALKS):
            if len(rows) <= count * (1 - MOST_UNUSUAL):
                break
            try:
                return rows, self._columns.arrays(octets, (ends - sizes)[rows], ends[rows])
            except UnusualError as error:
                rows = np.delete(rows, error.rows)
        return rows[:0], {}

    def _one_by_one(
        self, buffer: bytes, spans: Iterable[tuple[int, int, int]], rows: int, count: int
    ) -> dict[str, pa.Array]:
        """The columns of ``rows`` messages of ``count``, given as number, offset and end."""
        filling = Filling(self.schema, rows)
        for row, (number, at, end) in enumerate(spans):
            try:
                # Its own bytes alone: what it says of its sizes reaches into no other's.
                filling.message(buffer[at:end], 0, end - at, row)
            except (MalformedError, IndexError) as error:
                if not self.lenient:
                    raise MalformedError(f"message {number} of {count} can't be read: {error}") from error
                filling.clear(row)
        return {
            field.name: array_of(field, filling.columns[field.name])
            for field in self.arrow
            if field.name not in PLACE
        }
