"""Every behaviour in docs/flow-control.md names a test that is there and that ``pytest -m flow`` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/flow-control.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TABLE)


def test_every_row_names_one() -> None:
    rows = [
        line for line in TABLE.splitlines() if line.startswith("| ") and not line.startswith("| behaviour")
    ]
    assert len(rows) > 30
    assert [row for row in rows if "`tests/" not in row] == []


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_it_is_there_and_marked(file: str, name: str) -> None:
    text = (ROOT / file).read_text()
    assert re.search(rf"^(?:def |class |){name}\b", text, re.MULTILINE)
    assert "pytest.mark.flow" in text
