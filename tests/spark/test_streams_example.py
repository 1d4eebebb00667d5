"""The example of the whole way, on a week of flights: its books agree although all of it is restarted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from examples.streams import books, ends
from examples.streams.__main__ import main
from examples.streams.picture import Look, drawn
from examples.streams.show import STOP

ROWS = 4000


def test_the_books_are_the_table_summed_up() -> None:
    rows = [row for day in books.days(ROWS) for row in day]
    assert [row["row"] for row in rows] == list(range(1, ROWS + 1))
    found = books.expected(ROWS)
    assert sum(row.flights for row in found.values()) == ROWS
    assert sum(row.minutes for row in found.values()) == sum(row["dep_delay"] or 0 for row in rows)
    assert found["2013-01-01/BOS"].airport == "General Edward Lawrence Logan Intl"
    assert {key[11:] for key, row in found.items() if row.airport is None} == {"BQN", "SJU", "STT", "PSE"}
    latest = max(datetime.fromisoformat(row["time_hour"]) for row in rows)
    assert datetime.fromisoformat(books.end_mark(ROWS)).astimezone(UTC) - latest == books.END_MARK


def test_a_row_that_comes_again_is_kept_once(tmp_path: Path) -> None:
    connection = ends.store(tmp_path)
    for _ in range(3):
        ends.keep(
            connection, "2013-01-01/BOS", {"airport": "Logan", "flights": 3, "delayed": 1, "minutes": 9}
        )
    connection.close()
    assert ends.kept(tmp_path) == ({"2013-01-01/BOS": books.Delays("Logan", 3, 1, 9)}, 2)


def test_the_picture_has_its_curves_its_threshold_and_its_restarts() -> None:
    looks = [Look(at / 10, 9 * at, 8 * at, at, at > 50, at, at // 9) for at in range(100)]
    picture = drawn(looks, [(2.0, "broker killed"), (4.0, "spark killed")], STOP)
    fromstring(picture)
    assert picture.count("<polyline") == 4
    assert "broker killed" in picture
    assert f"flow_stop_count {STOP}" in picture


@pytest.mark.timeout(900)
def test_every_day_is_kept_once_although_all_of_it_is_restarted(
    java: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "streams"
    status = main(["--rows", str(ROWS), "--pace", "0.3", "--rate", "150", "--out", str(out)])
    told = capfd.readouterr()
    assert status == 0, told
    assert f"{len(books.expected(ROWS)):,} kept, 0 wrong" in told.out
    assert "5 restarts" in told.out
    fromstring((out / "flow.svg").read_text())
