"""Arrow arrays of values that are in lists."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from . import convert


def array_of(field: pa.Field, values: list[Any]) -> pa.Array:
    """A column's values, text encoded, as an array of the field's type. A map is a dict with encoded keys."""
    if pa.types.is_map(field.type):
        return maps(field.type, values)
    return plain(field.type, values)


def plain(wanted: pa.DataType, values: list[Any]) -> pa.Array:
    """Values of a type that is no map."""
    if pa.types.is_string(wanted):
        return as_text(pa.array(values, pa.binary()))
    if pa.types.is_struct(wanted):
        # A variant; null is one too.
        filled = [b"\x00" if value is None else value for value in values]
        return pa.StructArray.from_arrays(
            [pa.array(filled, pa.binary()), pa.array([convert.NO_KEYS] * len(values), pa.binary())],
            fields=list(wanted),
        )
    return pa.array(values, wanted)


def as_text(encoded: pa.Array) -> pa.Array:
    """A binary array as text; where it isn't UTF-8, the replacement character."""
    try:
        return encoded.cast(pa.string())
    except pa.ArrowInvalid:
        values = encoded.to_pylist()
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in values], pa.string()
        )


def maps(wanted: pa.MapType, values: list[dict[bytes, Any] | None]) -> pa.Array:
    """Maps with their items in order."""
    offsets: list[int] = []
    keys: list[bytes] = []
    items: list[Any] = []
    for pairs in values:
        offsets.append(len(keys))
        if pairs:
            keys.extend(pairs)
            items.extend(pairs.values())
    offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        as_text(pa.array(keys, pa.binary())),
        plain(wanted.item_type, items),
        type=wanted,
        mask=pa.array([pairs is None for pairs in values], pa.bool_()),
    )
