"""Plain tables, and names that can't take over a terminal."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from broker.cli import table
from broker.cli.printable import printable
from broker.cli.table import number, size, size_limit, text

COLUMNS = (
    text("name", "name"),
    number("msg", "depth"),
    number("stop/resume", "stop", "resume", show=table.limit),
)


def test_words_stand_left_and_numbers_right() -> None:
    rows = [
        {"name": "orders", "depth": 12345, "stop": 0, "resume": 0},
        {"name": "x", "depth": 1, "stop": 9, "resume": 5},
    ]
    assert table.plain(COLUMNS, rows).splitlines() == [
        "name       msg  stop/resume",
        "---------------------------",
        "orders  12,345          -/-",
        "x            1          9/5",
    ]


def test_an_empty_table_has_its_heading() -> None:
    assert table.plain(COLUMNS, []).splitlines()[0].split() == ["name", "msg", "stop/resume"]


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\x9b31m", "\u202eabc", "\x7f", "\ud800", "\u2028"])
def test_nothing_a_terminal_obeys_is_printed(name: str) -> None:
    row = {"name": name, "depth": name, "stop": [name], "resume": 1}
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table.rich("t", COLUMNS, [row]))
    for shown in (table.plain(COLUMNS, [row]), table.as_json([row]), capture.get()):
        assert name not in shown
        assert shown.encode()


def test_markup_in_a_name_is_no_markup() -> None:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table.rich("t", COLUMNS, [{"name": "[bold]x[/bold]"}]))
    assert "[bold]x[/bold]" in capture.get()


def test_other_alphabets_are_left_alone() -> None:
    assert printable("заказы-é-日本") == "заказы-é-日本"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        ("", "-"),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (1.25, "1.2"),
        ([], "-"),
        (["a", "b"], "a, b"),
    ],
)
def test_words(value: object, shown: str) -> None:
    assert table.word(value) == shown


def test_sizes() -> None:
    assert [size(value) for value in (0, 1023, 1536, 80 << 20, 5 << 40, None)] == [
        "0 B",
        "1,023 B",
        "1.5 KB",
        "80.0 MB",
        "5,120.0 GB",
        "-",
    ]
    assert [size_limit(value) for value in (0, 80 << 20, 1000, None)] == ["-", "80 MB", "1000 B", "-"]


def test_attributes_are_asked_for_once() -> None:
    assert table.attributes((*COLUMNS, text("again", "name"))) == ["name", "depth", "stop", "resume"]


def test_json_is_json() -> None:
    assert json.loads(table.as_json({"a": [1, None, "é"]})) == {"a": [1, None, "é"]}
