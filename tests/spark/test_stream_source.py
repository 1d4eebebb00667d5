"""The source of streams through Spark: every message once and in order, whatever is killed meanwhile."""

from __future__ import annotations

import json
import shutil
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from proton import Message

from broker.client.link import Connection
from broker.client.request import Management
from tests.spark.conftest import Fault, ReturningBroker, StartBroker
from tests.spark.feeding import feed, names
from tests.spark.queries import SECONDS
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.seeing import await_number, number_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLICIES = """policies:
  - {match: "flights", kind: stream, durable: true}
  - {match: "parts/0", kind: stream, durable: true}
  - {match: "parts/1", kind: stream, durable: true}
  - {match: "parts/2", kind: stream, durable: true}
  - {match: "split", kind: stream, partitions: 4, durable: true}
  - {match: "copy", kind: stream, partitions: 3, durable: true}
  - {match: "short", kind: stream, durable: true, max_size: 8MB}
  - {match: "memory", kind: stream, max_count: 1000}
"""


@pytest.fixture
def streams(start_broker: StartBroker) -> RunningBroker:
    return start_broker(policies=POLICIES)


@pytest.fixture
def returning_streams(tmp_path: Path) -> Iterator[ReturningBroker]:
    broker = ReturningBroker(tmp_path / "returning", POLICIES, "")
    yield broker
    broker.stop()


@pytest.fixture(autouse=True)
def _named(request: pytest.FixtureRequest) -> None:
    """Both names, wherever these tests run."""
    if "spark" in request.fixturenames:
        from pyspark_sluice import SluiceDataSource

        request.getfixturevalue("spark").dataSource.register(SluiceDataSource)


def table_of(spark: SparkSession, url: str, address: str = "flights", **options: str) -> DataFrame:
    reader = spark.read.format("sluice").option("url", url).option("address", address)
    return reader.options(**options).load()


def stream_of(spark: SparkSession, url: str, address: str = "flights", **options: str) -> DataFrame:
    reader = spark.readStream.format("sluice").option("url", url).option("address", address)
    return reader.options(**{"startingOffsets": "earliest"} | options).load()


class Seen:
    """A query that notes the rows of every batch, by the batch's id, each time that it is done."""

    def __init__(self, stream: DataFrame, checkpoint: Path, *, now: bool = True) -> None:
        self.done: dict[int, list[list[tuple[int, int, str]]]] = defaultdict(list)
        writer = stream.writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", str(checkpoint))
        self.query: StreamingQuery = (writer.trigger(availableNow=True) if now else writer).start()

    @property
    def batches(self) -> list[list[tuple[int, int, str]]]:
        """Rows as partition, offset and id of every batch, as it was done last."""
        return [done[-1] for _, done in sorted(self.done.copy().items()) if done]

    @property
    def rows(self) -> list[tuple[int, int, str]]:
        return [row for batch in self.batches for row in batch]

    def end(self) -> Seen:
        """Once the query has ended well."""
        assert self.query.awaitTermination(int(SECONDS))
        assert self.query.exception() is None
        return self

    def wait(self, count: int) -> None:
        """Until so many rows have come; at once what the query failed of, if it did."""

        def came() -> bool:
            failure = self.query.exception()
            if failure is not None:
                raise failure
            return len(self.rows) >= count

        wait_until(came, SECONDS, f"{count} rows")

    def _on_batch(self, frame: DataFrame, number: int) -> None:
        rows = frame.select("partition", "offset", "message_id").collect()
        found = [(row.partition, row.offset, row.message_id) for row in rows]
        self.done[number].append(found)


def undo_commit(checkpoint: Path, batch: int) -> None:
    """Have a batch planned and not done, as far as Spark knows."""
    for name in (str(batch), f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink()


def expected(
    count: int, first: int = 0, partition: int = 0, name: int | None = None
) -> list[tuple[int, int, str]]:
    """Rows from an offset on, whose ids are numbered as the offsets are, or from ``name`` on."""
    ids = names(count, first if name is None else name)
    return [(partition, offset, each) for offset, each in enumerate(ids, first)]


def test_a_stream_is_replayed_from_its_beginning_by_every_query(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path
) -> None:
    feed(streams.url, "flights", names(7000), durable=True)
    for run in ("one", "other"):
        seen = Seen(stream_of(spark, streams.url), tmp_path / run).end()
        assert seen.rows == expected(7000)
        assert len(seen.batches) == 1
    assert number_of(streams, "flights", "stream_msgs") == 7000
    [progress] = [each for each in seen.query.recentProgress if each["numInputRows"]]
    source = progress["sources"][0]
    known = number_of(streams, "flights", "stream_id")
    assert json.loads(source["endOffset"]) == {"0": 7000, "stream_id": {"0": known}}
    assert json.loads(source["latestOffset"]) == {"0": 7000, "lag": 0}


def test_the_columns_are_those_of_a_queue_and_the_place(spark: SparkSession, streams: RunningBroker) -> None:
    feed(streams.url, "flights", names(3), durable=True)
    found = table_of(spark, streams.url)
    queue = spark.read.format("amqp").option("url", streams.url).option("address", "orders")
    assert found.columns == [*queue.load().columns, "offset", "partition"]
    assert dict(found.dtypes)["offset"] == "bigint"
    assert dict(found.dtypes)["partition"] == "int"
    chosen = spark.read.format("amqp").option("url", streams.url).option("address", "flights")
    rows = chosen.schema("offset long, message_id string").load().collect()
    assert [tuple(row) for row in rows] == list(enumerate(names(3)))
    assert chosen.schema("partition int").load().count() == 3
    with pytest.raises(Exception, match="column 'offset' can't be int"):
        chosen.schema("offset int").load().collect()
    with pytest.raises(Exception, match="column 'offset' is of streams only"):
        queue.schema("offset long").load().collect()


def test_a_query_goes_on_from_its_checkpoint_and_a_batch_done_again_is_the_same(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path
) -> None:
    feed(streams.url, "flights", names(2500), durable=True)
    stream = stream_of(spark, streams.url, maxOffsetsPerTrigger="1000", minPartitions="3")
    first = Seen(stream, tmp_path / "checkpoint").end()
    assert [len(batch) for batch in first.batches] == [1000, 1000, 500]
    assert first.rows == expected(2500)
    # As if it had been killed behind its second batch, the third planned and not done.
    undo_commit(tmp_path / "checkpoint", 2)
    feed(streams.url, "flights", names(600, 2500), durable=True)
    again = Seen(stream, tmp_path / "checkpoint").end()
    assert again.done[2] == first.done[2]
    assert again.rows == expected(1100, 2000)
    assert sorted(again.done) == [2, 3]


def test_partitions_are_read_together_and_each_in_order(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path
) -> None:
    feed(streams.url, "parts/0", names(900), durable=True)
    feed(streams.url, "parts/1", names(300, 5000), durable=True)
    stream = stream_of(spark, streams.url, "parts", partitions="2", maxOffsetsPerTrigger="400")
    seen = Seen(stream, tmp_path / "checkpoint").end()
    # Each has its share: three quarters and one.
    assert [
        [sum(row[0] == partition for row in batch) for partition in (0, 1)] for batch in seen.batches
    ] == [[300, 100]] * 3
    by_part = {partition: [row for row in seen.rows if row[0] == partition] for partition in (0, 1)}
    assert by_part == {0: expected(900), 1: expected(300, 0, 1, 5000)}
    offsets = json.loads((tmp_path / "checkpoint" / "offsets" / "1").read_text().splitlines()[-1])
    known = {at: number_of(streams, f"parts/{at}", "stream_id") for at in ("0", "1")}
    assert offsets == {"0": 600, "1": 200, "stream_id": known}
    # A partition that is new to the checkpoint is read from its beginning.
    feed(streams.url, "parts/2", names(50, 9000), durable=True)
    more = stream_of(spark, streams.url, "parts", partitions="3")
    assert Seen(more, tmp_path / "checkpoint").end().rows == expected(50, 0, 2, 9000)
    # One that is gone is missed.
    with pytest.raises(Exception, match="the checkpoint has partition 2, and the stream has 2"):
        Seen(stream, tmp_path / "checkpoint").query.awaitTermination(int(SECONDS))


def feed_groups(url: str, address: str, count: int) -> list[tuple[str, str]]:
    """Messages of seven groups in turn; their groups and ids."""
    rows = [(f"group-{number % 7}", each) for number, each in enumerate(names(count))]
    with Connection(url) as connection:
        sender = connection.sender(address)
        for group, name in rows:
            found = Message(id=name, group_id=group, body=name, durable=True)
            sender.send(bytes(found.encode()), 20)
        sender.flush(20)
    return rows


def grouped(rows: list[tuple[str, str]], partitions: int) -> dict[int, list[tuple[str, str]]]:
    """By partition, as docs/streams.md says where a group goes."""
    found: dict[int, list[tuple[str, str]]] = {each: [] for each in range(partitions)}
    for row in rows:
        found[zlib.crc32(row[0].encode()) % partitions].append(row)
    return found


def test_a_stream_that_has_partitions_is_found_with_all_of_them(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path
) -> None:
    rows = feed_groups(streams.url, "split", 700)
    by_part = grouped(rows, 4)
    given = {"url": streams.url, "address": "split"}
    # Nothing says that it is a stream, nor how many partitions it has.
    table = spark.read.format("sluice").options(**given).load()
    assert table.columns[-2:] == ["offset", "partition"]
    assert table.rdd.getNumPartitions() == sum(bool(each) for each in by_part.values())
    found = table.select("partition", "offset", "group_id", "message_id").collect()
    for partition, expected_rows in by_part.items():
        those = [row for row in found if row.partition == partition]
        assert [row.offset for row in those] == list(range(len(expected_rows)))
        assert [(row.group_id, row.message_id) for row in those] == expected_rows
    # One of them alone is a stream like any other.
    largest = max(by_part, key=lambda each: len(by_part[each]))
    alone = table_of(spark, streams.url, f"split/{largest}").select("partition", "message_id").collect()
    assert [tuple(row) for row in alone] == [(0, name) for _, name in by_part[largest]]
    with pytest.raises(Exception, match="maxRowsPerTrigger is an option of a queue, and 'split' is read as"):
        spark.read.format("sluice").options(**given, maxRowsPerTrigger="5").load().collect()


def test_a_stream_with_partitions_that_a_query_was_there_before_and_its_copy(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path
) -> None:
    """The policy makes it of four partitions when the query asks; what is written back keeps its groups."""
    stream = stream_of(spark, streams.url, "split", sourceType="stream")
    seen = Seen(stream, tmp_path / "checkpoint", now=False)
    wait_until(lambda: bool(seen.query.recentProgress), SECONDS, "its first trigger")
    assert number_of(streams, "split", "partitions", "topic") == 4
    rows = feed_groups(streams.url, "split", 700)
    seen.wait(700)
    seen.query.stop()
    by_part = grouped(rows, 4)
    for partition in range(4):
        those = [(offset, name) for at, offset, name in seen.rows if at == partition]
        assert those == list(enumerate(name for _, name in by_part[partition]))
    writer = stream.drop("offset", "partition").writeStream.format("sluice").option("url", streams.url)
    writer = writer.option("address", "copy").option("checkpointLocation", str(tmp_path / "copying"))
    assert writer.trigger(availableNow=True).start().awaitTermination(int(SECONDS))
    found = table_of(spark, streams.url, "copy").select("partition", "group_id", "message_id").collect()
    assert sorted((row.group_id, row.message_id) for row in found) == sorted(rows)
    for partition, expected_rows in grouped(rows, 3).items():
        those_rows = [(row.group_id, row.message_id) for row in found if row.partition == partition]
        for group in {group for group, _ in expected_rows}:
            of_group = [row for row in those_rows if row[0] == group]
            assert of_group == [row for row in expected_rows if row[0] == group]


def test_where_a_query_begins(spark: SparkSession, streams: RunningBroker, tmp_path: Path) -> None:
    feed(streams.url, "flights", names(20), durable=True)
    later = int(time.time() * 1000) + 1
    wait_until(lambda: time.time() * 1000 > later + 20, 5, "a later time")
    feed(streams.url, "flights", names(10, 20), durable=True)
    begins = {
        '{"0": 17}': 17,
        '{"0": -2}': 0,
        '{"0": -1}': 30,
        "latest": 30,
    }
    for number, (value, first) in enumerate(begins.items()):
        stream = stream_of(spark, streams.url, startingOffsets=value)
        assert Seen(stream, tmp_path / str(number)).end().rows == expected(30 - first, first)
    given = {"url": streams.url, "address": "flights"}
    timed = spark.readStream.format("amqp").options(**given, startingTimestamp=str(later)).load()
    assert Seen(timed, tmp_path / "timed").end().rows == expected(10, 20)
    # By default a query reads what comes from now on.
    bare = spark.readStream.format("amqp").options(**given).load()
    default = Seen(bare, tmp_path / "default", now=False)
    wait_until((tmp_path / "default" / "offsets").exists, SECONDS, "it to have begun")
    wait_until(lambda: bool(default.query.recentProgress), SECONDS, "its first trigger")
    feed(streams.url, "flights", names(5, 30), durable=True)
    default.wait(5)
    default.query.stop()
    assert default.rows == expected(5, 30)


def test_a_table_has_a_range(spark: SparkSession, streams: RunningBroker) -> None:
    feed(streams.url, "parts/0", names(1000), durable=True)
    feed(streams.url, "parts/1", names(10), durable=True)

    def rows(**options: str) -> list[tuple[int, int]]:
        found = table_of(spark, streams.url, "parts", partitions="2", **options)
        return [(row.partition, row.offset) for row in found.select("partition", "offset").collect()]

    assert len(rows()) == 1010
    some = rows(startingOffsets='{"0": 100, "1": 4}', endingOffsets='{"0": 105, "1": -1}')
    assert some == [*((0, at) for at in range(100, 105)), *((1, at) for at in range(4, 10))]
    assert rows(startingOffsets="latest") == []
    found = table_of(spark, streams.url, "parts", partitions="2", minPartitions="6")
    assert found.rdd.getNumPartitions() == 6
    assert found.count() == 1010
    faults = {
        ("startingOffsets", '{"0": 3}'): "startingOffsets: partition 1 is missing",
        ("endingOffsets", '{"0": 2000, "1": 2}'): "endingOffsets: partition 0 ends at 1000, before 2000",
        (
            "maxRowsPerTrigger",
            "5",
        ): "maxRowsPerTrigger is an option of a queue, and 'parts' is read as a stream",
        ("sourceType", "queue"): "partitions is an option of a stream, and 'parts' is read as a queue",
    }
    for (name, value), says in faults.items():
        with pytest.raises(Exception, match=says):
            rows(**{name: value})
    # A stream that is to be made by its first message is empty until then.
    assert table_of(spark, streams.url, "parts", partitions="3").count() == 1010
    with pytest.raises(Exception, match="endingOffsets: partition 0 ends at 5, before it begins at 7"):
        rows(startingOffsets='{"0": 7, "1": 0}', endingOffsets='{"0": 5, "1": 0}')
    with pytest.raises(Exception, match="the broker shows no stream 'orders/0'"):
        table_of(spark, streams.url, "orders", partitions="1").collect()


def test_a_batch_waits_for_enough_messages(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path
) -> None:
    feed(streams.url, "flights", names(3), durable=True)
    stream = stream_of(spark, streams.url, minOffsetsPerTrigger="50", maxTriggerDelay="1 h")
    seen = Seen(stream, tmp_path / "checkpoint", now=False)
    # The first batch has what there is.
    seen.wait(3)
    feed(streams.url, "flights", names(40, 3), durable=True)
    waited = len(seen.query.recentProgress)
    wait_until(lambda: seen.query.status["message"] == "Waiting for data to arrive", SECONDS, "it to wait")
    feed(streams.url, "flights", names(10, 43), durable=True)
    seen.wait(53)
    seen.query.stop()
    assert [len(batch) for batch in seen.batches if batch] == [3, 50]
    assert waited <= len(seen.query.recentProgress)


def test_data_loss_fails_the_query_or_is_passed_over(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path, faults: list[Fault]
) -> None:
    feed(streams.url, "short", names(100), durable=True)
    stream = stream_of(spark, streams.url, "short")
    assert Seen(stream, tmp_path / "checkpoint").end().rows == expected(100)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "other")
    sent = 100
    while number_of(streams, "short", "first_offset") <= 100:
        feed(streams.url, "short", names(400, sent), 10_000, durable=True)
        sent += 400
        assert sent < 20_000, "retention removed nothing"
    first = number_of(streams, "short", "first_offset")
    with pytest.raises(Exception, match=rf"partition 0 \('short'\), offsets 100 to {first - 1} are gone"):
        Seen(stream, tmp_path / "checkpoint").query.awaitTermination(int(SECONDS))
    lenient = stream_of(spark, streams.url, "short", failOnDataLoss="false")
    assert Seen(lenient, tmp_path / "other").end().rows == expected(sent - first, first)
    faults.append(
        Fault("retention ahead of the query", "stream", sent, sent - first + 100, first - 100, 0, "it fails")
    )


def test_a_stream_that_is_gone_with_its_broker_is_missed(
    spark: SparkSession, returning_streams: ReturningBroker, tmp_path: Path
) -> None:
    broker = returning_streams
    feed(broker.url, "memory", names(100))
    stream = stream_of(spark, broker.url, "memory")
    assert Seen(stream, tmp_path / "checkpoint").end().rows == expected(100)
    broker.stop()
    broker.start()
    feed(broker.url, "memory", names(10, 500))
    lost = r"partition 0 \('memory'\) is not the stream that the query has read up to offset 100"
    with pytest.raises(Exception, match=lost):
        Seen(stream, tmp_path / "checkpoint").query.awaitTermination(int(SECONDS))
    lenient = stream_of(spark, broker.url, "memory", failOnDataLoss="false")
    assert Seen(lenient, tmp_path / "checkpoint").end().rows == expected(10, 0, 0, 500)


def forget_identities(checkpoint: Path, batches: int) -> None:
    """Write a checkpoint as the version before did, which knew no identity of a stream."""
    for batch in range(batches):
        path = checkpoint / "offsets" / str(batch)
        lines = path.read_text().splitlines()
        lines[2] = json.dumps({"0": json.loads(lines[2])["0"]})
        path.write_text("\n".join(lines))
        (path.parent / f".{batch}.crc").unlink()


@pytest.mark.parametrize("address", ["flights", "memory"])
def test_a_stream_that_was_made_anew_and_is_longer_than_the_query_s_position_is_missed(
    spark: SparkSession, returning_streams: ReturningBroker, tmp_path: Path, address: str
) -> None:
    broker = returning_streams
    durable = address == "flights"
    feed(broker.url, address, names(100), durable=durable)
    stream = stream_of(spark, broker.url, address)
    assert Seen(stream, tmp_path / "checkpoint").end().rows == expected(100)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "before")
    forget_identities(tmp_path / "before", 1)
    feed(broker.url, address, names(20, 100), durable=durable)
    # A checkpoint of before goes on, and knows the stream from its next batch on.
    assert Seen(stream, tmp_path / "before").end().rows == expected(20, 100)
    if durable:
        with Management(broker.url) as management:
            management.call("DELETE", "org.sluice.queue", address)
    else:
        broker.stop()
        broker.start()
    feed(broker.url, address, names(150, 1000), durable=durable)
    for checkpoint, offset in (("checkpoint", 100), ("before", 120)):
        lost = rf"partition 0 \('{address}'\) is not the stream that the query has read up to offset {offset}"
        with pytest.raises(Exception, match=lost):
            Seen(stream, tmp_path / checkpoint).query.awaitTermination(int(SECONDS))
    lenient = stream_of(spark, broker.url, address, failOnDataLoss="false")
    assert Seen(lenient, tmp_path / "checkpoint").end().rows == expected(150, 0, 0, 1000)
    feed(broker.url, address, names(5, 1150), durable=durable)
    # What was lost once isn't lost again.
    assert Seen(stream, tmp_path / "checkpoint").end().rows == expected(5, 150, 0, 1150)


def test_the_broker_is_killed_again_and_again_and_every_row_comes_once(
    spark: SparkSession, returning_streams: ReturningBroker, tmp_path: Path, faults: list[Fault]
) -> None:
    broker = returning_streams
    for part in (0, 1):
        feed(broker.url, f"parts/{part}", names(6000, 100_000 * part), durable=True)
    stream = stream_of(spark, broker.url, "parts", partitions="2", maxOffsetsPerTrigger="1500")
    seen = Seen(stream, tmp_path / "checkpoint", now=False)
    for kill in (1, 2):
        seen.wait(1500 * kill)
        broker.kill()
        broker.start()
        for part in (0, 1):
            feed(broker.url, f"parts/{part}", names(500, 100_000 * part + 5500 + 500 * kill), durable=True)
    seen.wait(14_000)
    seen.query.stop()
    by_part = {partition: [row for row in seen.rows if row[0] == partition] for partition in (0, 1)}
    assert by_part == {0: expected(7000), 1: expected(7000, 0, 1, 100_000)}
    done = [batch for batches in seen.done.values() for batch in batches]
    duplicates = sum(map(len, done)) - 14_000
    faults.append(Fault("broker killed -9 twice", "stream", 14_000, len(seen.rows), 0, duplicates))
    assert duplicates == 0


def test_a_task_that_fails_is_done_again_and_every_row_comes_once(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path, faults: list[Fault]
) -> None:
    feed(streams.url, "flights", names(3000), durable=True)
    failed = tmp_path / "failed"

    def once(batches: Iterator[Any]) -> Iterator[Any]:
        """Fails in the middle of its rows, the first time."""
        for number, batch in enumerate(batches):
            yield batch
            if number == 1 and not failed.exists():
                failed.touch()
                raise RuntimeError("a task that fails")

    stream = stream_of(spark, streams.url, minPartitions="2").select("partition", "offset", "message_id")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        passed = stream.mapInArrow(once, stream.schema)
        seen = Seen(passed, tmp_path / "checkpoint").end()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert failed.exists()
    assert seen.rows == expected(3000)
    faults.append(Fault("a task fails within its rows", "stream", 3000, len(seen.rows), 0, 0))


def test_a_file_sink_has_every_row_once_over_a_restart(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path
) -> None:
    feed(streams.url, "flights", names(4000), durable=True)
    stream = stream_of(spark, streams.url, maxOffsetsPerTrigger="1000", minPartitions="2")
    output, checkpoint = str(tmp_path / "output"), tmp_path / "checkpoint"

    def run() -> None:
        writer = stream.select("offset", "message_id").writeStream.format("parquet").option("path", output)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(int(SECONDS))

    run()
    # The last batch is written and not in the commit log, and it is done again.
    undo_commit(checkpoint, 3)
    feed(streams.url, "flights", names(500, 4000), durable=True)
    run()
    rows = spark.read.parquet(output).orderBy("offset").collect()
    assert [(row.offset, row.message_id) for row in rows] == list(enumerate(names(4500)))


def test_a_selector_is_applied_by_the_broker(
    spark: SparkSession, streams: RunningBroker, tmp_path: Path
) -> None:
    feed(streams.url, "flights", names(500), durable=True)
    some = "JMSMessageID IN ('m-00000003', 'm-00000450')"
    stream = stream_of(spark, streams.url, selector=some, maxOffsetsPerTrigger="100")
    seen = Seen(stream, tmp_path / "checkpoint").end()
    assert [row[1] for row in seen.rows] == [3, 450]
    await_number(streams, "flights", "stream_msgs", 500)
