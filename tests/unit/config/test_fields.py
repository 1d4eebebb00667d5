"""Rows of tables: the default as text, the key of an attribute, and a mapping parsed by its rows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from broker.config.fields import (
    Budget,
    Count,
    Duration,
    Field,
    Flag,
    Percent,
    Size,
    Type,
    Word,
    default_text,
    parse_items,
    row,
    rows_of,
)


@pytest.mark.parametrize(
    ("type_", "default", "text"),
    [
        (Count(), 1000, "1000"),
        (Count(), 0, "0"),
        (Size(), 64 << 20, "64 MB"),
        (Budget(), 512 << 10, "512 KB"),
        (Duration(), 1500, "1500 ms"),
        (Percent(), 50, "50 %"),
        (Flag(), False, "false"),
        (Word(("fair", "fill")), "fair", "fair"),
        (Count(), None, "none"),
    ],
)
def test_a_default_is_shown_in_its_unit(type_: Type, default: object, text: str) -> None:
    assert default_text(type_, default) == text


@dataclass(frozen=True, slots=True)
class Sample:
    """Three rows, and a field that is none."""

    most: int = row(Count(), 5, "Most of them")
    pause_ms: int = row(Duration(), 2000, "How long", shown="a while")
    place: str = row(Word(("here",)), "here", "Where", key="other.place")
    note: str = ""


def test_the_rows_of_a_class_have_keys_below_its_section() -> None:
    rows = rows_of(Sample, "samples")
    assert [(name, each.name, each.default) for name, each in rows.items()] == [
        ("most", "samples.most", "5"),
        ("pause_ms", "samples.pause", "a while"),
        ("place", "other.place", "here"),
    ]
    assert Sample() == Sample(5, 2000, "here", "")


def test_a_mapping_is_parsed_by_its_rows() -> None:
    rows = (Field("count", Count(), "none", "How many"), Field("time", Duration(), "none", "How long"))
    assert parse_items({"count": 3, "time": "2s"}, rows) == {"count": 3, "time": 2000}
    with pytest.raises(ValueError, match=r"unknown key 'cuont' \(did you mean 'count'\?\)"):
        parse_items({"cuont": 3}, rows)
    with pytest.raises(ValueError, match="count: expected a whole number, not 'x'"):
        parse_items({"count": "x"}, rows)
