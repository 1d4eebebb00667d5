"""What Spark reports of a query, as batches that count once: reports as Spark 4 makes them, by hand."""

from __future__ import annotations

import pytest

from pyspark_sluice.jobs.streams import MOST_BATCHES, Seen

pytestmark = pytest.mark.flow

Report = dict[str, object]


def ran(number: int, rows: int, late: int = 0) -> Report:
    """A batch that was run."""
    operator = {"numRowsTotal": 1, "numRowsDroppedByWatermark": late}
    return {
        "batchId": number,
        "timestamp": "2026-11-01T00:00:00.000Z",
        "numInputRows": rows,
        "durationMs": {"addBatch": 400, "latestOffset": 3, "triggerExecution": 500},
        "eventTime": {"watermark": "2026-11-01T00:00:00.000Z"},
        "stateOperators": [operator],
    }


def idle(number: int) -> Report:
    """None has been for ten seconds: the number is that of the next."""
    return ran(number, 0) | {"durationMs": {"latestOffset": 3, "triggerExecution": 3}}


def test_the_batch_behind_an_idle_spell_counts() -> None:
    seen = Seen()
    reports = [ran(0, 10), idle(1)]
    seen.note(reports)
    reports += [idle(1), ran(1, 1000, late=300), idle(2)]
    seen.note(reports)
    seen.note(reports)
    assert (seen.batches, seen.rows, seen.late_rows) == (2, 1010, 300)
    assert [batch.number for batch in seen.last] == [0, 1]


def test_a_batch_without_rows_that_moved_the_watermark_counts() -> None:
    seen = Seen()
    seen.note([ran(0, 10), ran(1, 0), idle(2)])
    assert [(batch.number, batch.rows) for batch in seen.last] == [(0, 10), (1, 0)]


def test_totals_are_of_all_batches_and_few_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    seen = Seen(tell=False)
    for number in range(1000):
        seen.note([ran(each, 10, late=1) for each in range(max(number - 99, 0), number + 1)])
    assert (seen.batches, seen.rows, seen.late_rows) == (1000, 10_000, 1000)
    assert [batch.number for batch in seen.last] == list(range(1000 - MOST_BATCHES, 1000))
    assert capsys.readouterr().err == ""
    Seen().note([ran(7, 1000, late=300)])
    assert "batch 7: 1,000 rows in 0.5 s, 2,000/s" in capsys.readouterr().err
