"""Reading of settings from a file, the environment and flags, by a table of their own."""

from __future__ import annotations

from pathlib import Path

from broker.config.fields import Count, Field, Word, table
from broker.config.sources import SourceReader, sections

TABLE = table(
    Field("level", Word(("low", "high")), "low", "How much"),
    Field("limits.most", Count(), "5", "Most of them"),
    Field("limits.least", Count(), "1", "Least of them"),
)


def reader() -> SourceReader:
    return SourceReader(TABLE, {"lvl": "level"})


def test_the_source_that_is_read_last_wins(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("level: low\nlimits:\n  most: 3\n  least: 2\n")
    read = reader()
    read.read_file(path)
    read.read_environment({"SLUICE_LIMITS_MOST": "4", "SLUICE_LVL": "high", "SLUICE_LIMITS_LEAST": ""})
    read.read_flags({"limits.most": 5, "lvl": None})
    assert read.problems == []
    assert {name: (each.value, str(each.place)) for name, each in read.found.items()} == {
        "level": ("high", "SLUICE_LVL"),
        "limits.most": (5, "--limits.most"),
        "limits.least": (2, f"{path}:4:3"),
    }


def test_a_faulty_value_leaves_that_of_an_earlier_source() -> None:
    read = reader()
    read.read_environment({"SLUICE_LEVEL": "high"})
    read.read_flags({"level": "highest", "lowest": 1})
    assert read.found["level"].value == "high"
    assert [str(each) for each in read.problems] == [
        "--level: level: expected 'low' or 'high', not 'highest' (did you mean 'high'?)",
        "--lowest: unknown key 'lowest'",
    ]


def test_the_sections_of_a_table() -> None:
    assert sections(TABLE) == ("limits",)
