"""The source of PySpark 4.0 and 4.1: positions that name the run, and what is settled when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_sluice.errors import OptionError
from pyspark_sluice.limits import ReadLimit
from pyspark_sluice.options import Options, parse
from pyspark_sluice.position import counted, position
from pyspark_sluice.stream import QueueReader
from pyspark_sluice.unlimited import UnlimitedReader

GIVEN = {"url": "amqp://broker.example.org", "address": "orders", "sourceType": "queue"}
SCHEMA = StructType().add("body", "string")


class FakeQueue(QueueReader):
    """A reader whose queue has 10 messages for each question; ``asked`` are the starts it was asked from."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, SCHEMA)
        self.asked: list[int] = []
        self.planned: list[tuple[int, int]] = []

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:
        self.asked.append(start["queue"])
        return position(start["queue"] + 10)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self.planned.append((counted(start), counted(end)))
        return [InputPartition(0)]


def reader_of(monkeypatch: pytest.MonkeyPatch) -> tuple[UnlimitedReader, FakeQueue]:
    options = parse(GIVEN, "source")
    reader, fake = UnlimitedReader(options, GIVEN, SCHEMA), FakeQueue(options)
    monkeypatch.setattr(reader._source, "known", lambda: fake)
    return reader, fake


def test_the_next_question_is_from_the_end_of_the_batch_planned_last(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, fake = reader_of(monkeypatch)
    first = reader.initialOffset()
    end = reader.latestOffset()
    # Asked again before anything was planned: nothing is settled.
    assert reader.latestOffset() == end
    reader.partitions(first, end)
    last = reader.latestOffset()
    assert fake.asked == [0, 0, 10]
    reader.partitions(end, last)
    assert fake.planned == [(0, 10), (10, 20)]


def test_a_batch_of_an_earlier_run_is_empty_and_the_next_begins_with_this_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, fake = reader_of(monkeypatch)
    before, planned = {"queue": 30, "run": 1}, {"queue": 40, "run": 1}
    assert reader.partitions(before, planned) == []
    assert "come with a later batch" in caplog.text
    end = reader.latestOffset()
    assert len(reader.partitions(planned, end)) == 1
    assert (fake.asked, fake.planned) == ([0], [(0, 10)])


def test_a_checkpoint_of_a_newer_spark_is_another_run_s(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, fake = reader_of(monkeypatch)
    reader.partitions(position(500), reader.latestOffset())
    assert fake.planned == [(0, 10)]


def test_options_that_need_the_start_are_refused_by_name() -> None:
    given = {**GIVEN, "sourceType": "stream", "maxoffsetspertrigger": "10", "maxTriggerDelay": "1 m"}
    with pytest.raises(OptionError, match=r"^maxOffsetsPerTrigger, maxTriggerDelay: PySpark 4\.2 or newer"):
        UnlimitedReader(parse(given, "source"), given, SCHEMA)
