"""Encoded messages as Arrow record batches.

Messages lie one behind the other in a single buffer and are read in place; what no column asks for is stepped
over. Measured by ``make bench-spark``: it is the executors' whole cost of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .arrays import array_of
from .incoming import PLACE, default_schema
from .rows import Filling
from .unpack import MalformedError

# PySpark 4.0 asks for none: there it is always this one.
_ZONE: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}

# What a source has where its reader names no schema.
SCHEMA = default_schema()
# Of columns that come from no message.
NOTHING: Mapping[str, pa.Array] = {}


class Decoder:
    """Record batches of one schema, which ``incoming.check`` has let pass.

    ``lenient``: a message that can't be read is a row of nulls; otherwise it raises MalformedError.
    """

    def __init__(self, schema: StructType, *, lenient: bool = False) -> None:
        self.schema = schema
        self.arrow = to_arrow_schema(schema, **_ZONE)
        self.lenient = lenient

    def batch(
        self,
        buffer: bytes,
        sizes: Sequence[int] | npt.NDArray[np.int64],
        beside: Mapping[str, pa.Array] = NOTHING,
    ) -> pa.RecordBatch:
        """The messages in ``buffer``, as long as ``sizes`` says, as one record batch.

        ``beside`` has the columns of ``incoming.PLACE``, for those of them that the schema has.
        """
        filling = Filling(self.schema, len(sizes))
        at = 0
        for row, size in enumerate(sizes):
            end = at + size
            try:
                # Its own bytes alone: what it says of its sizes reaches into no other's.
                filling.message(buffer[at:end], 0, size, row)
            except (MalformedError, IndexError) as error:
                if not self.lenient:
                    raise MalformedError(f"message {row} of {len(sizes)} can't be read: {error}") from error
                filling.clear(row)
            at = end
        arrays = [
            beside[field.name] if field.name in PLACE else array_of(field, filling.columns[field.name])
            for field in self.arrow
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)
