"""Plain tables, and names that can't take over a terminal."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from broker.cli.terminal import table
from broker.cli.terminal.printable import printable
from broker.cli.terminal.table import number, size, size_limit, text

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


def test_wide_characters_take_two_places_and_marks_none() -> None:
    rows = [{"name": "日本", "depth": 1}, {"name": "e\u0301te", "depth": 2}, {"name": "abcd", "depth": 3}]
    lines = table.plain((text("name", "name"), number("n", "depth")), rows).splitlines()
    assert lines[2:] == ["日本  1", "e\u0301te   2", "abcd  3"]


def test_a_narrow_terminal_cuts_words_and_leaves_out_the_last_columns() -> None:
    columns = (text("name", "name"), number("msg", "depth"), text("peer", "peer"), number("last", "depth"))
    rows = [{"name": "a name that is long enough", "depth": 12345, "peer": "127.0.0.1:45678"}]

    def line(room: int) -> str:
        return table.laid_out(columns, rows, room)[1]

    assert line(80) == "a name that is long enough  12,345  127.0.0.1:45678  12,345"
    assert line(50) == "a name that is l…  12,345  127.0.0.1:45678  12,345"
    assert line(44) == "a name that …  12,345  127.0.0.1:45…  12,345"
    assert line(40) == "a name that is…  12,345  127.0.0.1:45678"
    assert line(22) == "a name that i…  12,345"
    assert line(5) == "a na…"
    rows[0]["name"] = "日本語のとても長いキュー"
    assert line(22) == "日本語のとて…   12,345"


def test_an_empty_table_has_its_heading() -> None:
    assert table.plain(COLUMNS, []).splitlines()[0].split() == ["name", "msg", "stop/resume"]


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\x9b31m", "\u202eabc", "\x7f", "\ud800", "\u2028"])
def test_nothing_a_terminal_obeys_is_printed(name: str) -> None:
    row = {"name": name, "depth": name, "stop": [name], "resume": 1}
    console = Console(width=200)
    with console.capture() as capture:
        console.print(*table.coloured(COLUMNS, [row], 200))
    for shown in (table.plain(COLUMNS, [row]), table.as_json([row]), capture.get()):
        assert name not in shown
        assert shown.encode()


def test_markup_in_a_name_is_no_markup() -> None:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(*table.coloured(COLUMNS, [{"name": "[bold]x[/bold]"}], 200))
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
