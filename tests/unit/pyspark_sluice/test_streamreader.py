"""Planning batches of a stream that is no longer the one that the checkpoint knows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql.types import StringType, StructType

from pyspark_sluice.errors import DataLossError
from pyspark_sluice.limits import ReadAllAvailable
from pyspark_sluice.management import Attributes
from pyspark_sluice.offsets import StreamOffsets
from pyspark_sluice.options import Options, parse
from pyspark_sluice.rangereader import StreamRange
from pyspark_sluice.ranges import Range
from pyspark_sluice.streamreader import StreamReader

SCHEMA = StructType().add("message_id", StringType())


class FakeOffsets(StreamOffsets):
    """A broker all of whose streams have the offsets 0 to 9; ``questions`` counts what it was asked."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.questions = 0

    def attributes(
        self, questions: Sequence[tuple[str, str]], patience_s: float | None
    ) -> list[Attributes | None] | None:
        self.questions += 1
        return [{"queue_type": "stream", "first_offset": 0, "next_offset": 10} for _ in questions]


def reader_of(streams: int, **given: str) -> tuple[StreamReader, FakeOffsets]:
    options = parse({"url": "amqp://broker.example.org", "address": "flights", **given}, "source")
    reader = StreamReader(options, SCHEMA, [f"flights/{each}" for each in range(streams)])
    broker = reader._broker = FakeOffsets(options)
    return reader, broker


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
