"""The promises of docs/operations.md: each names a test, and each test that is named is there."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_security_page import TESTS

PAGE = ROOT / "docs" / "operations.md"
TABLES = PAGE.read_text().partition("\n## Promises and the tests that show them")[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLES.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| promise"))
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_promise_is_shown_by_tests_that_are_there(row: list[str]) -> None:
    assert len(row) == 4
    cells = row[1:]
    assert all(cell in ("–", "the same") or re.search(r"`test_\w+`", cell) for cell in cells)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named
    assert {name for name in named if name not in TESTS} == set()
