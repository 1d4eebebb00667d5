"""The stream reader as the driver calls it, without Spark: positions, settlement, and what is repeated."""

from __future__ import annotations

import json
import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StringType, StructType

from pyspark_sluice import stream
from pyspark_sluice.decode import SCHEMA
from pyspark_sluice.receiver import Receiver
from pyspark_sluice.stream import QueueReader, parts
from tests.spark.feeding import feed, names, source
from tests.wire.conftest import RunningBroker
from tests.wire.seeing import await_number, number_of


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is slow to answer is none that can't be reached, whose batches would be empty."""
    monkeypatch.setattr(stream, "PATIENCE_S", 20.0)
    monkeypatch.setattr(stream, "DEPTH_S", 20.0)


@contextmanager
def reader(broker: RunningBroker, **options: str) -> Iterator[QueueReader]:
    wanted = StructType().add("message_id", StringType())
    found = QueueReader(source(broker.url, "q", **options), wanted)
    try:
        yield found
    finally:
        found.stop()


def rows(found: QueueReader, start: dict[str, int], end: dict[str, int]) -> list[str]:
    """What the executors make of a batch, each with a reader that came to it in a pickle."""
    read: list[str] = []
    for partition in found.partitions(start, end):
        executor, sent = pickle.loads(pickle.dumps((found, partition)))
        for batch in executor.read(sent):
            read += batch.column("message_id").to_pylist()
    return read


def test_one_batch_after_the_other(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(250))
    with reader(broker, rowsPerPartition="30") as found:
        start = found.initialOffset()
        for number in range(3):
            end = json.loads(json.dumps(found.latestOffset(start, ReadMaxRows(100))))
            assert len(found.partitions(start, end)) == (4, 4, 2)[number]
            assert rows(found, start, end) == names((100, 100, 50)[number], 100 * number)
            # A task that failed is planned again.
            assert rows(found, start, end) == names((100, 100, 50)[number], 100 * number)
            # Asking for what comes behind a batch settles it, not before.
            assert number_of(broker, "q", "depth_msgs") == 250 - 100 * number
            start = end
        assert found.latestOffset(start, ReadMaxRows(100)) == start
        await_number(broker, "q", "depth_msgs", 0)
        assert found.partitions(start, start) == []


def test_a_task_gets_so_many_rows_and_so_many_bytes() -> None:
    messages = [b"a", b"bb", b"c" * 9, b"d", b"e", b"f"]
    assert list(parts(messages, 2, 100)) == [[b"a", b"bb"], [b"c" * 9, b"d"], [b"e", b"f"]]
    assert list(parts(messages, 5, 4)) == [[b"a", b"bb"], [b"c" * 9], [b"d", b"e", b"f"]]
    assert list(parts([], 5, 4)) == []


def test_commit_settles_as_well(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(50))
    with reader(broker) as found:
        end = found.latestOffset(found.initialOffset(), ReadMaxRows(30))
        found.commit(end)
        await_number(broker, "q", "depth_msgs", 20)
        assert found.latestOffset(end, ReadMaxRows(30)) == {"queue": 50}


def test_a_batch_that_was_not_used_is_offered_again(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(50))
    with reader(broker) as found:
        start = found.initialOffset()
        end = found.latestOffset(start, ReadMaxRows(30))
        assert found.latestOffset(start, ReadMaxRows(30)) == end
        assert number_of(broker, "q", "ready_msgs") == 20
        assert rows(found, start, end) == names(30)


def test_a_batch_repeated_after_a_restart_is_empty_and_comes_later(broker: RunningBroker) -> None:
    """Filled with other messages it would lose them: a sink that has written that batch drops it."""
    feed(broker.url, "q", names(50))
    with reader(broker) as found:
        start = found.initialOffset()
        end = found.latestOffset(start, ReadMaxRows(30))
    await_number(broker, "q", "ready_msgs", 50)
    with reader(broker) as again:
        assert again.partitions(start, end) == []
        last = again.latestOffset(end, ReadMaxRows(100))
        assert rows(again, end, last) == names(50)
        assert again.latestOffset(last, ReadMaxRows(100)) == last == {"queue": 80}
        await_number(broker, "q", "depth_msgs", 0)


def test_every_limit_spark_may_ask_for(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(6000), 1000)
    with reader(broker, maxRowsPerTrigger="40", maxBytesPerTrigger="20000") as found:
        assert found.getDefaultReadLimit() == ReadMaxRows(40)
        start = found.latestOffset(found.initialOffset(), ReadMaxRows(40))
        assert start == {"queue": 40}
        # Bytes bound it as well, by the size of those that came.
        end = found.latestOffset(start, ReadMaxRows(40))
        assert 18 <= end["queue"] - 40 <= 20
        start = found.latestOffset(end, ReadMaxBytes(500_000))
        assert 470 <= start["queue"] - end["queue"] <= 500
        # Everything is everything, whatever the options say.
        assert found.latestOffset(start, ReadAllAvailable()) == {"queue": 6000}


def test_a_run_that_ends_with_what_was_there(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(50))
    with reader(broker) as found:
        found.prepareForTriggerAvailableNow()
        feed(broker.url, "q", names(30, 50))
        start = found.latestOffset({"queue": 7}, ReadMaxRows(40))
        end = found.latestOffset(start, ReadMaxRows(40))
        assert (start, end) == ({"queue": 47}, {"queue": 57})
        assert found.latestOffset(end, ReadMaxRows(40)) == end
        await_number(broker, "q", "depth_msgs", 30)
        assert found.reportLatestOffset() == {"queue": 87, "depth": 30, "lag": 30}
        # Where others took some of it, it ends with the queue.
        found.prepareForTriggerAvailableNow()
        with reader(broker) as other:
            other.commit(other.latestOffset(other.initialOffset(), ReadMaxRows(10)))
            await_number(broker, "q", "depth_msgs", 20)
        last = found.latestOffset(end, ReadMaxRows(40))
        assert last == {"queue": 77}
        assert found.latestOffset(last, ReadMaxRows(40)) == last


def test_a_run_ends_though_producers_go_on_and_the_depth_cannot_be_seen(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Receiver, "depth", lambda self, patience_s: None)
    feed(broker.url, "q", names(50))
    with reader(broker) as found:
        found.prepareForTriggerAvailableNow()
        positions = [found.initialOffset()]
        for number in range(20):
            positions.append(found.latestOffset(positions[-1], ReadMaxRows(30)))
            if positions[-1] == positions[-2]:
                break
            feed(broker.url, "q", names(1, 50 + number))
    # What came while the first batch was read is read as well.
    assert positions == [{"queue": 0}, {"queue": 30}, {"queue": 51}, {"queue": 51}]
    assert "how many messages 'q' has can't be seen" in caplog.text


def test_a_run_over_a_subscription_reads_more_than_its_one_link_may_hold(broker: RunningBroker) -> None:
    """Nobody tells how many messages it has, and a link that holds all it may is sent no more."""
    given = {"nodeKind": "topic", "subscription": "nightly"}
    with reader(broker, **given) as found:
        assert found.latestOffset(found.initialOffset(), ReadMaxRows(1)) == {"queue": 0}
    feed(broker.url, "q", names(2500))
    with reader(broker, **given) as found:
        found.prepareForTriggerAvailableNow()
        positions = [found.initialOffset()]
        for number in range(10):
            positions.append(found.latestOffset(positions[-1], ReadMaxRows(10_000)))
            if positions[-1] == positions[-2]:
                break
            feed(broker.url, "q", names(1, 2500 + number))
    assert [each["queue"] for each in positions] == [0, 1000, 2000, 2502, 2502]


def test_a_checkpoint_of_another_kind_is_refused(broker: RunningBroker) -> None:
    with reader(broker) as found, pytest.raises(ValueError, match="not one of a queue"):
        found.latestOffset({"stream": 5}, ReadMaxRows(1))


def test_one_that_stopped_leaves_signals_as_they_were(broker: RunningBroker) -> None:
    """An ignored signal is inherited: processes that are started later could not be ended by it."""
    feed(broker.url, "q", names(1))
    before = signal.getsignal(signal.SIGTERM)
    with reader(broker) as found:
        assert found.latestOffset(found.initialOffset(), ReadMaxRows(1)) == {"queue": 1}
        assert signal.getsignal(signal.SIGTERM) is not before, "a query that is ended closes its connection"
    assert signal.getsignal(signal.SIGTERM) is before


def test_making_one_connects_to_nothing() -> None:
    found = QueueReader(source("amqp://127.0.0.1:1", "q"), SCHEMA)
    assert found.initialOffset() == {"queue": 0}
    assert found.reportLatestOffset() is None
    assert found.partitions({"queue": 0}, {"queue": 5}) == []
    found.stop()
