"""Tables that tasks make in Python: one list of columns, said to Spark and to Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

Columns = Mapping[str, str]

_PLAIN = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
_TYPES = _PLAIN | {f"array<{name}>": pa.list_(kind) for name, kind in _PLAIN.items()}


def ddl(columns: Columns) -> str:
    """As Spark's schemas are written."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def batch(columns: Columns, rows: Iterable[Mapping[str, object]]) -> pa.RecordBatch:
    """Rows as Arrow; keys that are no column are left out."""
    given = list(rows)
    arrays = [pa.array([row[name] for row in given], type=_TYPES[kind]) for name, kind in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def table(columns: Columns, rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """The same as a table."""
    return pa.Table.from_batches([batch(columns, rows)])
