"""docs/spark.md has every option as it is now."""

from __future__ import annotations

from tools.sparkoptions import PAGE, written


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text() == written(PAGE.read_text()), "make docs"
