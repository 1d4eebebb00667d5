"""Planning batches of a stream that is no longer the one that the checkpoint knows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StringType, StructType

from pyspark_sluice.errors import DataLossError
from pyspark_sluice.limits import ReadAllAvailable, ReadMaxRows
from pyspark_sluice.management import Attributes
from pyspark_sluice.offsets import StreamOffsets
from pyspark_sluice.options import Options, parse
from pyspark_sluice.position import Position
from pyspark_sluice.rangereader import StreamRange
from pyspark_sluice.ranges import Range
from pyspark_sluice.streamreader import StreamReader
from pyspark_sluice.unlimited import UnlimitedReader

SCHEMA = StructType().add("message_id", StringType())


class FakeOffsets(StreamOffsets):
    """A broker all of whose streams have the offsets 0 to 9; ``questions`` counts what it was asked.

    ``stream_id`` is that of each, None for a broker that has no such attribute.
    """

    def __init__(self, options: Options, stream_id: int | None = None) -> None:
        super().__init__(options)
        self.questions = 0
        self.stream_id = stream_id

    def attributes(
        self, questions: Sequence[tuple[str, str]], patience_s: float | None
    ) -> list[Attributes | None] | None:
        self.questions += 1
        known: Attributes = {"queue_type": "stream", "first_offset": 0, "next_offset": 10}
        if self.stream_id is not None:
            known["stream_id"] = self.stream_id
        return [known for _ in questions]


def reader_of(streams: int, stream_id: int | None = None, **given: str) -> tuple[StreamReader, FakeOffsets]:
    options = parse({"url": "amqp://broker.example.org", "address": "flights", **given}, "source")
    reader = StreamReader(options, SCHEMA, [f"flights/{each}" for each in range(streams)])
    broker = reader._broker = FakeOffsets(options, stream_id)
    return reader, broker


def at(offset: int, stream_id: int) -> Position:
    """A position of a stream with one partition."""
    return {"0": offset, "stream_id": {"0": stream_id}}


def wanted(tasks: Sequence[InputPartition]) -> list[tuple[Range, int | None]]:
    """What tasks are to read, and of which streams."""
    assert all(isinstance(each, StreamRange) for each in tasks)
    return [(each.wanted, each.stream_id) for each in tasks if isinstance(each, StreamRange)]


def test_a_batch_of_an_earlier_run_that_the_stream_ends_before_fails_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader, _ = reader_of(1)
    with pytest.raises(DataLossError, match=r"partition 0 \('flights/0'\) ends at 10, before offset 100"):
        reader.partitions({"0": 100}, {"0": 200})
    # Offsets that were announced and aren't there yet are the task's to wait for.
    assert len(reader.partitions({"0": 5}, {"0": 12})) == 1
    lenient, _ = reader_of(1, failOnDataLoss="false")
    assert len(lenient.partitions({"0": 100}, {"0": 200})) == 1
    assert "ends at 10, before offset 100" in caplog.text


def test_a_batch_of_this_run_is_not_asked_about_again() -> None:
    reader, broker = reader_of(1)
    end = reader.latestOffset({"0": 4}, ReadAllAvailable())
    before = broker.questions
    [task] = reader.partitions({"0": 4}, end)
    assert isinstance(task, StreamRange)
    assert (task.wanted, broker.questions) == (Range(0, 4, 10), before)


def test_partitions_that_are_gone_are_data_loss_or_left_out(caplog: pytest.LogCaptureFixture) -> None:
    start, end = {"0": 4, "1": 4}, {"0": 8, "1": 8}
    reader, _ = reader_of(1)
    for attempt in (
        lambda: reader.partitions(start, end),
        lambda: reader.latestOffset(start, ReadAllAvailable()),
    ):
        with pytest.raises(DataLossError, match="the checkpoint has partition 1, and the stream has 1"):
            attempt()
    lenient, _ = reader_of(1, failOnDataLoss="false")
    [task] = lenient.partitions(start, end)
    assert isinstance(task, StreamRange)
    assert task.wanted == Range(0, 4, 8)
    assert lenient.latestOffset(start, ReadAllAvailable()) == {"0": 10}
    assert "the checkpoint has partition 1" in caplog.text


def test_a_stream_that_was_made_anew_and_is_longer_by_now_is_data_loss() -> None:
    reader, _ = reader_of(1, 8)
    lost = r"partition 0 \('flights/0'\) is not the stream that the query has read up to offset 4"
    with pytest.raises(DataLossError, match=lost):
        reader.latestOffset(at(4, 7), ReadAllAvailable())
    # A stream that the version before had made, and that this one made anew.
    with pytest.raises(DataLossError, match=lost):
        reader.latestOffset(at(4, 0), ReadAllAvailable())


def test_a_stream_that_was_made_anew_is_read_from_its_beginning_where_loss_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader, _ = reader_of(1, 8, failOnDataLoss="false")
    # The limit is one of messages, from the beginning on.
    for start in (at(4, 7), at(10, 7), at(100, 7)):
        end = reader.latestOffset(start, ReadMaxRows(6))
        assert end == at(6, 8)
        assert wanted(reader.partitions(start, end)) == [(Range(0, 0, 6, anew=True), 8)]
    assert "is not the stream that the query has read up to offset 4; it is read from its" in caplog.text
    assert reader.latestOffset(at(6, 8), ReadMaxRows(6)) == at(10, 8)
    # The same batch in a later run, in which loss isn't allowed: it was planned with the loss.
    strict, _ = reader_of(1, 8)
    assert wanted(strict.partitions(at(100, 7), at(6, 8))) == [(Range(0, 0, 6, anew=True), 8)]


def test_a_batch_of_an_earlier_run_has_no_rows_of_another_stream(caplog: pytest.LogCaptureFixture) -> None:
    reader, _ = reader_of(1, 8)
    for start in (at(2, 7), {"0": 2}):
        with pytest.raises(DataLossError, match="is not the stream that the query has read up to offset 2"):
            reader.partitions(start, at(6, 7))
    lenient, _ = reader_of(1, 8, failOnDataLoss="false")
    assert wanted(lenient.partitions(at(2, 7), at(6, 7))) == []
    assert "is not the stream" in caplog.text
    assert lenient.latestOffset(at(6, 7), ReadAllAvailable()) == at(10, 8)


def test_a_checkpoint_without_identities_goes_on_and_gets_them_with_its_next_batch() -> None:
    reader, broker = reader_of(1, 7)
    end = reader.latestOffset({"0": 4}, ReadAllAvailable())
    assert end == at(10, 7)
    assert wanted(reader.partitions({"0": 4}, end)) == [(Range(0, 4, 10), 7)]
    # Nothing new is no batch, though more is known than the position says.
    assert reader.latestOffset({"0": 10}, ReadAllAvailable()) == {"0": 10}
    assert reader.initialOffset() == at(10, 7)
    # A broker of before goes on with what is known.
    broker.stream_id = None
    end = reader.latestOffset(at(4, 7), ReadAllAvailable())
    assert end == at(10, 7)
    plain, _ = reader_of(1)
    assert plain.latestOffset({"0": 4}, ReadAllAvailable()) == {"0": 10}
    assert wanted(plain.partitions({"0": 4}, {"0": 10})) == [(Range(0, 4, 10), None)]
    assert plain.initialOffset() == {"0": 10}


def test_a_new_partition_has_its_identity_and_the_others_keep_theirs() -> None:
    reader, _ = reader_of(2, 7)
    assert reader.latestOffset(at(4, 7), ReadAllAvailable()) == {
        "0": 10,
        "1": 10,
        "stream_id": {"0": 7, "1": 7},
    }


def test_without_a_start_from_spark_another_stream_is_seen_when_the_batch_is_planned() -> None:
    reader, _ = reader_of(1, 8)
    given = {"url": "amqp://broker.example.org", "address": "flights", "sourceType": "stream"}
    unlimited = UnlimitedReader(parse(given, "source"), given, SCHEMA)
    unlimited._source._reader = reader
    end = unlimited.latestOffset()
    assert end == at(10, 8)
    with pytest.raises(DataLossError, match="is not the stream that the query has read up to offset 4"):
        unlimited.partitions(at(4, 7), end)
    assert wanted(unlimited.partitions(at(4, 8), end)) == [(Range(0, 4, 10), 8)]
