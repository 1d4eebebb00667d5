"""docs/security.md and SECURITY.md: every promise in a table names what shows it, and that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.config.broker import FIELDS
from tests.docs.pages import ROOT

PAGE, PROMISES = ROOT / "docs" / "security.md", ROOT / "SECURITY.md"
MOST_LINES = 350
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in (path.name, *re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
}


def shown(page: Path) -> Iterator[tuple[str, str]]:
    """Each row of a table that ends with "shown by": the row's first cell, and its last."""
    within = False
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and not set(line) <= set("|-: ") and within:
            yield cells[0], cells[-1]
        within = bool(cells) and (within or cells[-1] == "shown by")


def is_there(name: str) -> bool:
    """Whether it is a test (… stands for anything), a setting, or a command of ours."""
    if name in FIELDS:
        return True
    if name.startswith("python -m "):
        return (ROOT / name.removeprefix("python -m ").replace(".", "/")).with_suffix(".py").exists()
    if name.startswith("make "):
        return f"\n{name.removeprefix('make ')}:" in (ROOT / "Makefile").read_text()
    pattern = re.compile(".*".join(re.escape(part) for part in name.split("…")))
    return any(pattern.fullmatch(test) for test in TESTS)


@pytest.mark.parametrize("page", [PAGE, PROMISES], ids=lambda page: page.name)
def test_every_promise_names_what_shows_it(page: Path) -> None:
    rows = list(shown(page))
    assert len(rows) >= 8
    lacking = {row: cell for row, cell in rows if not re.search(r"`[^`]+`", cell)}
    assert lacking == {}
    named = {name for _, cell in rows for name in re.findall(r"`([^`]+)`", cell)}
    assert {name for name in named if not is_there(name)} == set()


def test_what_running_text_names_is_there_too() -> None:
    text = re.sub(r"^```.*?^```$|^\|.*$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(…?test_\w+…?|…\w+…?)`", text))
    assert {name for name in named if not is_there(name)} == set()


def test_the_page_can_be_read_in_one_go() -> None:
    """But for the tables that commands write."""
    own = re.sub(
        r"<!-- (mechanisms|python -m bench\.attacks --write) -->.*?<!-- end of .*? -->",
        "",
        PAGE.read_text(),
        flags=re.DOTALL,
    )
    assert len(own.splitlines()) < MOST_LINES
