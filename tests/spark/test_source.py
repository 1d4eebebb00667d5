"""The source through Spark: a queue as a table and as a stream, admission control, and backpressure."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker.cli import main
from broker.client.errors import ClientTimeoutError
from broker.client.link import Connection
from tests.spark.conftest import PASSWORD, PASSWORD_VARIABLE, Fault, ReturningBroker, StartBroker
from tests.spark.feeding import await_on_disk, consumers, feed, message, names
from tests.spark.queries import SECONDS, Watched, stream_of
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.secured import Secured
from tests.wire.seeing import await_number, number_of, queue_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_of(spark: SparkSession, url: str, address: str, **options: str) -> DataFrame:
    reader = spark.read.format("amqp").option("url", url).option("address", address)
    return reader.options(**options).load()


def test_a_table_of_a_queue_takes_nothing_and_can_be_written_as_it_is(
    spark: SparkSession, broker: RunningBroker
) -> None:
    feed(broker.url, "q", names(6000), 30)
    found = table_of(spark, broker.url, "q")
    assert found.count() == 6000
    assert [row.message_id for row in found.orderBy("message_id").limit(2).collect()] == names(2)
    found.write.format("amqp").option("url", broker.url).option("address", "copy").mode("append").save()
    copied = table_of(spark, broker.url, "copy").select("message_id", "body").collect()
    assert sorted((row.message_id, bytes(row.body)) for row in copied) == [
        (each, bytes(30)) for each in names(6000)
    ]
    assert number_of(broker, "q", "ready_msgs") == 6000


def test_columns_may_be_chosen_and_others_are_refused(spark: SparkSession, broker: RunningBroker) -> None:
    feed(broker.url, "q", names(3))
    chosen = spark.read.format("amqp").option("url", broker.url).option("address", "q")
    found = chosen.schema(
        "message_id string, delivery_count long, application_properties map<string, double>"
    )
    assert [tuple(row) for row in found.load().collect()] == [(name, 0, None) for name in names(3)]
    with pytest.raises(Exception, match="did you mean 'message_id'"):
        chosen.schema("mesage_id string").load().collect()
    with pytest.raises(Exception, match="did you mean 'maxRowsPerTrigger'"):
        stream_of(spark, broker.url, "q", maxRowPerTrigger="5").writeStream.format(
            "noop"
        ).start().awaitTermination()


def test_available_now_takes_what_was_there_and_settles_all_of_it(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    feed(broker.url, "q", names(4500))
    stream = stream_of(spark, broker.url, "q", maxRowsPerTrigger="2000", rowsPerPartition="700")
    watched = Watched(stream, tmp_path / "checkpoint", available_now=True)
    assert watched.query.awaitTermination(int(SECONDS))
    assert watched.query.exception() is None
    assert [len(batch) for batch in watched.batches] == [2000, 2000, 500]
    assert watched.ids == names(4500)
    # Spark commits no run's last batch.
    await_number(broker, "q", "depth_msgs", 0)
    reported = [json.loads(each["sources"][0]["latestOffset"]) for each in watched.query.recentProgress]
    assert {"queue": 4500, "depth": 4500, "lag": 2500} in reported
    # Another run goes on behind it.
    feed(broker.url, "q", names(10, 4500))
    again = Watched(stream, tmp_path / "checkpoint", available_now=True)
    assert again.query.awaitTermination(int(SECONDS))
    assert again.ids == names(10, 4500)


@contextmanager
def producing(url: str, address: str, wanted: list[str]) -> Iterator[None]:
    """A producer that sends these as soon as it may."""
    done = threading.Event()

    def produce() -> None:
        with Connection(url) as connection:
            sender = connection.sender(address)
            for name in wanted:
                while not done.is_set():
                    try:
                        sender.send(message(name), 0.2)
                        break
                    except ClientTimeoutError:
                        continue
                if done.is_set():
                    return
            sender.flush(20)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_slow_query_throttles_the_producers_of_its_queue(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thresholds = "flow_stop_count: 1000, flow_resume_count: 800, producer_window: 100"
    broker = start_broker(policies=f"policies:\n  - {{match: q, {thresholds}}}\n")
    with producing(broker.url, "q", names(100_000)):
        await_number(broker, "q", "depth_msgs", 1000)
        stream = stream_of(spark, broker.url, "q", maxRowsPerTrigger="500")
        watched = Watched(stream, tmp_path / "checkpoint", stepwise=True)
        for batch in range(1, 5):
            watched.await_batch(batch)
            # While a batch runs nothing is granted; the queue is full and its producers wait.
            assert {row["credit"] for row in consumers(broker.url, "q")} == {0}
            wait_until(
                lambda: bool(queue_of(broker, "q")["flowStopped"]), SECONDS, "the producers to be stopped"
            )
            # What came in is what the query is through with and a full queue, to the message.
            await_number(broker, "q", "received", 1000 + 500 * (batch - 1))
            assert number_of(broker, "q", "depth_msgs") == 1000
            if batch == 4:
                # Behind a step the queue has room, until its producers have filled it again.
                assert main.main(["why", "q", "-b", broker.url]) == 0
            watched.step()
        watched.stop()
    said = capsys.readouterr().out
    assert "flow_stop_count" in said or "1,000" in said, said


def test_a_query_waits_for_producers_that_an_operator_stopped(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, faults: list[Fault]
) -> None:
    feed(broker.url, "q", names(100))
    assert main.main(["producers", "stop", "q", "-b", broker.url]) == 0
    watched = Watched(stream_of(spark, broker.url, "q"), tmp_path / "checkpoint")
    watched.wait(lambda: len(watched.ids) == 100, "what was there")
    with producing(broker.url, "q", names(200, 100)):
        await_number(broker, "q", "blocked_producers", 1)
        assert number_of(broker, "q", "received") == 100
        assert main.main(["producers", "start", "q", "-b", broker.url]) == 0
        watched.wait(lambda: len(watched.ids) == 300, "more to come")
    watched.stop()
    assert watched.ids == names(300)
    what = "producers stopped by an operator, then started"
    faults.append(Fault(what, "source", 300, 300, 0, 0, "the query waits, then goes on"))


def test_a_query_that_is_stopped_gives_back_what_is_not_settled(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    feed(broker.url, "q", names(100))
    stream = stream_of(spark, broker.url, "q", maxRowsPerTrigger="60")
    watched = Watched(stream, tmp_path / "checkpoint", every="1 hour")
    watched.wait((tmp_path / "checkpoint" / "commits" / "0").exists, "the first batch")
    assert number_of(broker, "q", "ready_msgs") == 40
    watched.stop()
    await_number(broker, "q", "ready_msgs", 100)
    wait_until(lambda: consumers(broker.url, "q") == [], SECONDS, "its links to be gone")


def test_a_wrong_password_ends_the_query_and_is_not_shown(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path, faults: list[Fault]
) -> None:
    secured = Secured(start_broker, tmp_path, "rules: [{allow: all}]\n", {"anna": ""})
    stream = stream_of(spark, secured.broker.url, "q", user="anna", passwordEnv=PASSWORD_VARIABLE)
    watched = Watched(stream, tmp_path / "checkpoint")
    with pytest.raises(Exception, match="LoginError") as failed:
        watched.query.awaitTermination(int(SECONDS))
    assert PASSWORD not in str(failed.value)
    faults.append(Fault("a wrong password", "source", 0, 0, 0, 0, "the query fails at once"))


def test_the_broker_killed_and_started_inside_a_batch(
    spark: SparkSession, returning_broker: ReturningBroker, tmp_path: Path, faults: list[Fault]
) -> None:
    feed(returning_broker.url, "q", names(4000), durable=True)
    stream = stream_of(spark, returning_broker.url, "q", maxRowsPerTrigger="1000")
    watched = Watched(stream, tmp_path / "checkpoint", stepwise=True)
    watched.await_batch(1)
    watched.step()
    watched.await_batch(2)
    # The first batch was settled before the second began; that has to outlive the broker.
    await_on_disk(returning_broker.url)
    returning_broker.kill()
    watched.run_free()
    returning_broker.start()
    watched.wait(lambda: len(set(watched.ids)) == 4000, "all rows")
    assert returning_broker.running is not None
    await_number(returning_broker.running, "q", "depth_msgs", 0)
    watched.stop()
    seen = watched.ids
    duplicates = len(seen) - len(set(seen))
    faults.append(
        Fault(
            "broker killed -9 and restarted inside a batch",
            "source",
            4000,
            len(seen),
            0,
            duplicates,
            "1 batch = 1,000",
        )
    )
    assert set(seen) == set(names(4000))
    assert duplicates <= 1000
