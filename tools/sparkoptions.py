"""Writes the tables of options and of columns into docs/spark.md: ``python -m tools.sparkoptions``."""

from __future__ import annotations

from pathlib import Path

from pyspark_sluice import incoming, options

PAGE = Path(__file__).parents[1] / "docs/spark.md"
TABLES = {"options": options.table, "columns": incoming.table}


def written(page: str) -> str:
    """The page with the tables as they are now."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = page.partition(begin)
        after = rest.partition(end)[2]
        page = f"{before}{begin}\n{table()}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
