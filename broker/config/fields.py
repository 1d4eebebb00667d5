"""Rows of settings, each with name, type, default and meaning, and the types that values may have.

A table of rows is the one source of the parsers, of the JSON Schemas and of the documentation. Types are pure
values: they know no file, no key and no place in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any, Protocol

from broker.errors import did_you_mean, listed
from broker.units import (
    DURATION_PATTERN,
    KB,
    PERCENT_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_percent,
    parse_size,
    show,
)

# A petabyte, or as many messages: far beyond use, and products of it with a percentage stay exact.
LARGEST = 1 << 50

Schema = dict[str, object]


class Type(Protocol):
    """The type of a value. ``parse`` raises ValueError with a text that says what was expected."""

    @property
    def label(self) -> str: ...

    def parse(self, value: object) -> object: ...

    def schema(self) -> Schema: ...


@dataclass(frozen=True, slots=True)
class Field:
    """One row: the key that users type, its type, the default as documentation shows it, and its meaning."""

    name: str
    type: Type
    default: str
    meaning: str

    def schema(self) -> Schema:
        return {"description": f"{self.meaning}. Default: {self.default}.", **self.type.schema()}


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number."""

    minimum: int = 0
    maximum: int = LARGEST
    label = "number"

    def parse(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"expected a whole number, not {show(value)}")
        return _bounded(int(value), self.minimum, self.maximum)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes, or a number with a unit."""

    minimum: int = 0
    maximum: int = LARGEST
    label = "size"

    def parse(self, value: object) -> int:
        return _bounded(parse_size(value), self.minimum, self.maximum)

    def schema(self) -> Schema:
        return _number_or_text(self.minimum, self.maximum, SIZE_PATTERN)


@dataclass(frozen=True, slots=True)
class Budget:
    """A number of bytes that many messages share; 0 for no limit."""

    # A smaller budget holds no message worth the name: more likely the unit was left out.
    smallest: int = 4 * KB
    label = "size"

    def parse(self, value: object) -> int:
        size = Size().parse(value)
        if 0 < size < self.smallest:
            least = format_size(self.smallest)
            unit = "a size takes a unit, as in 512 MB"
            raise ValueError(f"expected 0 for no limit, or at least {least}, not {size} bytes; {unit}")
        return size

    def schema(self) -> Schema:
        numbers = _number_or_text(self.smallest, LARGEST, SIZE_PATTERN)["anyOf"]
        assert isinstance(numbers, list)
        return {"anyOf": [{"const": 0}, *numbers]}


@dataclass(frozen=True, slots=True)
class Duration:
    """A number of milliseconds, or a number with a unit."""

    minimum: int = 0
    # The largest value of AMQP's milliseconds (AMQP 1.0 §2.8.9).
    maximum: int = (1 << 32) - 1
    label = "duration"

    def parse(self, value: object) -> int:
        return _bounded(parse_duration(value), self.minimum, self.maximum)

    def schema(self) -> Schema:
        return _number_or_text(self.minimum, self.maximum, DURATION_PATTERN)


@dataclass(frozen=True, slots=True)
class Percent:
    """A whole number from 0 to 100, or to a lower ``maximum``, with or without a percent sign."""

    maximum: int = 100
    label = "percentage"

    def parse(self, value: object) -> int:
        return _bounded(parse_percent(value), 0, self.maximum)

    def schema(self) -> Schema:
        return _number_or_text(0, self.maximum, PERCENT_PATTERN)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false, and no word or number in their place."""

    label = "true or false"

    def parse(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"expected true or false, not {show(value)}")

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Word:
    """One of a few words; those in ``later`` are known and refused as not available yet."""

    words: tuple[str, ...]
    later: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return " or ".join(f"`{word}`" for word in self.words)

    def parse(self, value: object) -> str:
        if isinstance(value, str):
            if value in self.words:
                return str(value)
            if value in self.later:
                raise ValueError(f"{show(value)} is not available yet; expected {listed(self.words)}")
        hint = did_you_mean(value, self.words)
        raise ValueError(f"expected {listed(self.words)}, not {show(value)}{hint}")

    def schema(self) -> Schema:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class NonEmptyText:
    """A text that isn't empty."""

    label = "text"
    longest: int = 65_536

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"expected a text, not {show(value)}")
        if len(value) > self.longest:
            raise ValueError(f"may have at most {self.longest} characters")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class PathType:
    """A path, from the working directory."""

    label = "path"

    def parse(self, value: object) -> Path:
        if isinstance(value, Path):
            return value
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"expected a path, not {show(value)}")
        return Path(value)

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class Several:
    """A list of one type; a text is one item, or several with commas between them."""

    item: Type
    minimum: int = 0

    @property
    def label(self) -> str:
        return f"list of {self.item.label}"

    def parse(self, value: object) -> tuple[object, ...]:
        values = value.split(",") if isinstance(value, str) else value
        values = [values] if isinstance(values, Path) else values
        if not isinstance(values, (list, tuple)):
            raise ValueError(f"expected a list, not {show(value)}")
        if len(values) < self.minimum:
            raise ValueError(f"expected at least {self.minimum}")
        return tuple(self.item.parse(item.strip() if isinstance(item, str) else item) for item in values)

    def schema(self) -> Schema:
        listed: Schema = {"type": "array", "items": self.item.schema(), "minItems": self.minimum}
        return {"anyOf": [listed, {"type": "string", "minLength": 1}]}


def parse_items(value: Mapping[object, object], rows: Iterable[Field]) -> dict[str, object]:
    """Parse the values of a mapping by their rows. ValueError with the first key or value that is wrong."""
    known = {row.name: row.type for row in rows}
    given: dict[str, object] = {}
    for key, item in value.items():
        if key not in known:
            raise ValueError(unknown_key(str(key), known))
        try:
            given[str(key)] = known[str(key)].parse(item)
        except ValueError as fault:
            raise ValueError(f"{key}: {fault}") from None
    return given


def from_text(type_: Type, text: str) -> object:
    """Read a text from a command line or a variable, which has no types as YAML has.

    It is the text itself if the type takes it, else the number or the truth value it spells.
    """
    try:
        type_.parse(text)
    except ValueError:
        return _literal(text)
    return text


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Make the text that refuses a key."""
    return f"unknown key {key!r}{did_you_mean(key, known)}"


def default_text(type_: Type, default: object) -> str:
    """Show a default as the documentation does, in the unit of its type; `none` for nothing."""
    if default is None or default == "" or default == ():
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int):
        formats = {Budget: format_size, Duration: format_duration, Percent: "{} %".format, Size: format_size}
        return formats.get(type(type_), str)(default)
    return ", ".join(default) if isinstance(default, tuple) else str(default)


def key_of(attribute: str) -> str:
    """Make the key that users type for an attribute: a duration's without its unit."""
    return attribute.removesuffix("_ms")


def row(type_: Type, default: object, meaning: str, *, shown: str = "", key: str = "") -> Any:
    """Make a dataclass field that is a row of a table.

    ``shown`` is the default in words, where it is not the value; ``key`` what users type, where it is not
    the attribute without its unit.
    """
    text = shown or default_text(type_, default)
    return dataclass_field(default=default, metadata={"row": Field(key, type_, text, meaning)})


def rows_of(table_class: type, section: str = "") -> dict[str, Field]:
    """Collect the rows of a dataclass by attribute, in its order, their keys below ``section``."""
    prefix = f"{section}." if section else ""
    found = {}
    for each in dataclass_fields(table_class):
        if "row" in each.metadata:
            key = each.metadata["row"].name or prefix + key_of(each.name)
            found[each.name] = replace(each.metadata["row"], name=key)
    return found


def object_schema(fields: Iterable[Field]) -> Schema:
    """Make the JSON Schema of a mapping with these keys and no others."""
    properties = {field.name: field.schema() for field in fields}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def reference(fields: Iterable[Field]) -> str:
    """Show the fields in a Markdown table, for the documentation."""
    rows = [f"| `{f.name}` | {f.type.label} | {f.default} | {f.meaning} |" for f in fields]
    return "\n".join(["| setting | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def table(*fields: Field) -> Mapping[str, Field]:
    """Map fields by name, in the order given."""
    return {field.name: field for field in fields}


def _bounded(number: int, minimum: int, maximum: int) -> int:
    if number < minimum:
        raise ValueError(f"must be at least {minimum}, not {number}")
    if number > maximum:
        raise ValueError(f"must be at most {maximum}, not {number}")
    return number


def _number_or_text(minimum: int, maximum: int, pattern: str) -> Schema:
    return {
        "anyOf": [
            {"type": "integer", "minimum": minimum, "maximum": maximum},
            {"type": "string", "pattern": pattern},
        ]
    }


def _literal(text: str) -> object:
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    return int(word) if re.fullmatch(r"[-+]?[0-9]{1,18}", word, re.ASCII) else text
