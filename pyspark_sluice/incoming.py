"""The columns a source can give, and where in a message each of them stands (AMQP 1.0 §3.2).

The columns of ``DEFAULT`` are those the sink takes, so that what was read can be written as it is; the rest
are there for whoever names them in a schema of his own.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

HEADER, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, BODY = 0x70, 0x72, 0x73, 0x74, 0x75

TEXT, BINARY, FLAG, NUMBER, TIME = StringType(), BinaryType(), BooleanType(), LongType(), TimestampType()
TEXTS = MapType(TEXT, TEXT)
# What the values of a map may be asked for as.
SCALARS = (
    StringType,
    BinaryType,
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
)


@dataclass(frozen=True, slots=True)
class Column:
    """``index``: of the field in its section's list. ``default``: what it is where it is absent."""

    section: int
    index: int
    type: DataType
    doc: str
    default: object = None


COLUMNS: dict[str, Column] = {
    "body": Column(BODY, 0, BINARY, "the data sections as they are; an amqp-value as text, or as JSON"),
    "to": Column(PROPERTIES, 2, TEXT, "the address it was sent to"),
    "subject": Column(PROPERTIES, 3, TEXT, "the subject"),
    "message_id": Column(PROPERTIES, 0, TEXT, "the message-id; binary as hexadecimal digits"),
    "correlation_id": Column(PROPERTIES, 5, TEXT, "the correlation-id; binary as hexadecimal digits"),
    "reply_to": Column(PROPERTIES, 4, TEXT, "the address for answers"),
    "group_id": Column(PROPERTIES, 10, TEXT, "the group it belongs to"),
    "content_type": Column(PROPERTIES, 6, TEXT, "the body's MIME type"),
    "user_id": Column(PROPERTIES, 1, BINARY, "who sent it"),
    "group_sequence": Column(PROPERTIES, 11, NUMBER, "its number in the group"),
    "absolute_expiry_time": Column(PROPERTIES, 8, TIME, "when it expires"),
    "durable": Column(HEADER, 0, FLAG, "whether it outlives the broker's restart", False),
    "priority": Column(HEADER, 1, IntegerType(), "0 to 9", 4),
    "ttl_ms": Column(HEADER, 2, NUMBER, "milliseconds to live"),
    "application_properties": Column(APPLICATION_PROPERTIES, 0, TEXTS, "the application's own"),
    "annotations": Column(ANNOTATIONS, 0, TEXTS, "the message annotations, of a dead letter why and whence"),
    "delivery_count": Column(HEADER, 4, NUMBER, "how many deliveries failed before this one", 0),
    "content_encoding": Column(PROPERTIES, 7, TEXT, "how the body is compressed"),
    "creation_time": Column(PROPERTIES, 9, TIME, "when it was made"),
    "reply_to_group_id": Column(PROPERTIES, 12, TEXT, "the group answers belong to"),
}
DEFAULT = tuple(COLUMNS)[:16]

# What a message of a stream has beside these, from its place and not from its bytes.
PLACE: dict[str, tuple[DataType, str]] = {
    "offset": (NUMBER, "of a stream: its offset"),
    "partition": (IntegerType(), "of a stream: the number of its partition"),
}


def default_schema(*, stream: bool = False) -> StructType:
    """What a source has where its reader names no schema."""
    schema = StructType()
    for name in DEFAULT:
        schema.add(name, COLUMNS[name].type)
    if stream:
        for name, (type_, _) in PLACE.items():
            schema.add(name, type_)
    return schema


def check(schema: StructType, *, stream: bool = False) -> None:
    """Raises ValueError for every column there is not, and every type that one can't be read as."""
    faults = []
    for field in schema.fields:
        column = COLUMNS.get(field.name)
        if field.name in PLACE:
            wanted = PLACE[field.name][0]
            if not stream:
                faults.append(f"column '{field.name}' is of streams only")
            elif field.dataType != wanted:
                kind = field.dataType.simpleString()
                faults.append(f"column '{field.name}' can't be {kind}: it is {wanted.simpleString()}")
        elif column is None:
            known = (*COLUMNS, *PLACE) if stream else tuple(COLUMNS)
            near = get_close_matches(field.name, known, 1)
            hint = f" (did you mean '{near[0]}'?)" if near else f"; there are {', '.join(known)}"
            faults.append(f"unknown column '{field.name}'{hint}")
        elif not _readable(column, field.dataType):
            faults.append(
                f"column '{field.name}' can't be {field.dataType.simpleString()}: {_choices(column)}"
            )
    if faults:
        raise ValueError("; ".join(faults))


def _readable(column: Column, wanted: DataType) -> bool:
    if column.section == BODY:
        return isinstance(wanted, BinaryType | StringType)
    if isinstance(column.type, MapType):
        return (
            isinstance(wanted, MapType)
            and isinstance(wanted.keyType, StringType)
            and isinstance(wanted.valueType, (*SCALARS, VariantType))
            and wanted.valueContainsNull
        )
    return isinstance(wanted, type(column.type))


def _choices(column: Column) -> str:
    if column.section == BODY:
        return "it is binary or string"
    if isinstance(column.type, MapType):
        return (
            "it is a map of string to string, binary, boolean, a number or variant, whose values may be null"
        )
    return f"it is {column.type.simpleString()}"


def table() -> str:
    """The columns as Markdown."""
    lines = ["| column | type | what |", "|---|---|---|"]
    for name, column in COLUMNS.items():
        kind = column.type.simpleString().upper()
        if column.section == BODY:
            kind += " or STRING"
        elif isinstance(column.type, MapType):
            kind = "MAP of STRING to STRING, BINARY, BOOLEAN, a number or VARIANT"
        more = "" if name in DEFAULT else "; only in a schema of one's own"
        lines.append(f"| `{name}` | {kind} | {column.doc}{more} |")
    lines += [
        f"| `{name}` | {type_.simpleString().upper()} | {doc} |" for name, (type_, doc) in PLACE.items()
    ]
    return "\n".join(lines) + "\n"
