"""Schemas written as Spark's DDL has them, without the JVM that reads it."""

from __future__ import annotations

from pyspark.sql import types as t

_SIMPLE: dict[str, t.DataType] = {
    "BINARY": t.BinaryType(),
    "STRING": t.StringType(),
    "BOOLEAN": t.BooleanType(),
    "TINYINT": t.ByteType(),
    "SMALLINT": t.ShortType(),
    "INT": t.IntegerType(),
    "BIGINT": t.LongType(),
    "FLOAT": t.FloatType(),
    "DOUBLE": t.DoubleType(),
    "DATE": t.DateType(),
    "TIMESTAMP": t.TimestampType(),
    "DECIMAL": t.DecimalType(10, 2),
    "INTERVAL DAY": t.DayTimeIntervalType(0, 0),
    "VARIANT": t.VariantType(),
}


def schema_of(ddl: str) -> t.StructType:
    """``a BINARY, b MAP<STRING, INT>``."""
    fields = []
    for each in _parts(ddl):
        name, _, kind = each.partition(" ")
        fields.append(t.StructField(name.strip("`:"), _kind(kind.strip())))
    return t.StructType(fields)


def _kind(text: str) -> t.DataType:
    outer, _, inner = text.partition("<")
    inner = inner.removesuffix(">")
    if outer == "ARRAY":
        return t.ArrayType(_kind(inner))
    if outer == "MAP":
        key, value = _parts(inner)
        return t.MapType(_kind(key), _kind(value))
    if outer == "STRUCT":
        return schema_of(inner)
    return _SIMPLE[text]


def _parts(text: str) -> list[str]:
    """At the commas that stand in no brackets."""
    found, depth, at = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            found.append(text[at:place].strip())
            at = place + 1
    return [*found, text[at:].strip()]
