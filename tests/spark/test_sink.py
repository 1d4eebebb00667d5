"""The sink through Spark: batch writes and streams, every column, ids, and what is refused beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from pyspark_sluice.options import parse
from pyspark_sluice.sender import Counts
from pyspark_sluice.writer import BatchWriter, Sent, StreamWriter
from tests.spark.conftest import PASSWORD, PASSWORD_VARIABLE, ReturningBroker
from tests.spark.reading import bodies, body_of, messages, tally
from tests.wire.conftest import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = "format_string('row-%07d', id)"


def rows(spark: SparkSession, count: int, partitions: int = 1) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr(f"CAST({ROWS} AS BINARY) AS body")


def activate(spark: SparkSession) -> None:
    """Spark finds data sources written in Python only on threads whose session is active: it is now."""
    spark.createDataFrame([(0,)], "number INT")


def write(frame: DataFrame, url: str, mode: str = "append", **options: str) -> None:
    activate(frame.sparkSession)
    frame.write.format("amqp").option("url", url).options(**options).mode(mode).save()


def test_a_batch_is_sent_and_every_row_accepted(spark: SparkSession, broker: RunningBroker) -> None:
    write(rows(spark, 4000, 2), broker.url, address="orders")
    found = tally(broker.url, "orders")
    assert (found.count, found.lost(bodies(4000))) == (4000, 0)
    assert len(found.ids) == 4000


def test_rows_that_are_alike_are_all_sent(spark: SparkSession, returning_broker: ReturningBroker) -> None:
    frame = spark.range(0, 1000, 1, 2).selectExpr("CAST(id % 10 AS STRING) AS body")
    write(frame, returning_broker.url, address="orders")
    found = tally(returning_broker.url, "orders")
    assert (found.count, len(found.ids), len(found.bodies)) == (1000, 1000, 10)


def test_a_job_run_again_under_its_query_id_sends_nothing_twice(
    spark: SparkSession, returning_broker: ReturningBroker
) -> None:
    for _ in range(2):
        write(rows(spark, 1000, 2), returning_broker.url, address="orders", queryId="load-2013")
    found = tally(returning_broker.url, "orders")
    assert (found.count, found.lost(bodies(1000))) == (1000, 0)
    assert all(str(each).startswith("load-2013-0-") for each in found.ids)


def test_every_column_through_spark(spark: SparkSession, broker: RunningBroker) -> None:
    frame = spark.sql("""
        SELECT named_struct('origin', 'JFK', 'delays', array(1, 2)) AS body, 'departed' AS subject,
        'c-1' AS correlation_id, 'replies' AS reply_to, 'UA' AS group_id, 7 AS group_sequence,
        TIMESTAMP '2030-01-01 00:00:00' AS absolute_expiry_time, CAST(9 AS TINYINT) AS priority,
        60000L AS ttl_ms, false AS durable, 'sender' AS user_id, 'm-1' AS message_id,
        map('kind', parse_json('"late"'), 'minutes', parse_json('12'), 'cancelled', parse_json('true'))
            AS application_properties,
        map('x-opt-origin', 'test') AS annotations, 'orders' AS `to`""")
    write(frame, broker.url)
    (found,) = messages(broker.url, "orders")
    assert found.body == {"origin": "JFK", "delays": [1, 2]}
    assert (found.subject, found.correlation_id, found.reply_to) == ("departed", "c-1", "replies")
    assert (found.group_id, found.group_sequence, found.priority) == ("UA", 7, 9)
    assert (found.expiry_time, found.durable, found.id) == (1893456000.0, False, "m-1")
    assert found.properties == {"kind": "late", "minutes": 12, "cancelled": True}


def test_json_of_a_row(spark: SparkSession, broker: RunningBroker) -> None:
    frame = spark.sql("SELECT named_struct('id', 1, 'name', 'é') AS body")
    write(frame, broker.url, address="orders", bodyType="json")
    (found,) = messages(broker.url, "orders")
    assert json.loads(body_of(found)) == {"id": 1, "name": "é"}
    assert found.content_type == "application/json"


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("1 AS colour", {"address": "orders"}, "unknown column colour"),
        ("'x' AS subject", {"adress": "orders"}, "did you mean 'address'?"),
        ("'x' AS subject", {"address": "orders", "password": "s3cret"}, "password is no option"),
    ],
    ids=["column", "option", "password"],
)
def test_what_makes_no_sense_is_refused_before_it_begins(
    spark: SparkSession, columns: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception, match=r".") as refused:
        write(spark.range(1).selectExpr("id AS body", columns), "amqp://127.0.0.1:1", **options)
    assert says in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_queue_is_not_overwritten(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="overw"):
        write(rows(spark, 1), "amqp://127.0.0.1:1", mode="overwrite", address="orders")


@pytest.mark.parametrize(
    ("counts", "level"),
    [(Counts(5), "INFO"), (Counts(5, skipped=1), "WARNING"), (Counts(5, 0, 1), "WARNING")],
)
def test_rows_that_went_elsewhere_are_warned_of(
    caplog: pytest.LogCaptureFixture, counts: Counts, level: str
) -> None:
    schema = StructType().add("body", "string")
    options = parse({"url": "amqp://127.0.0.1:1", "address": "orders"}, "sink")
    with caplog.at_level("INFO", "pyspark_sluice"):
        BatchWriter(options, schema, overwrite=False).commit([Sent(counts)])
        StreamWriter(options, schema).commit([Sent(counts)], 7)
    assert [record.levelname for record in caplog.records] == [level] * 2
    assert all(str(counts) in record.getMessage() for record in caplog.records)


def test_no_plan_shows_a_password(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    options = {
        "address": "orders",
        "user": "alice",
        "passwordEnv": PASSWORD_VARIABLE,
        "reconnectTimeout": "1",
    }
    with pytest.raises(Exception, match="Connection refused") as failed:
        write(rows(spark, 1), "amqp://127.0.0.1:1", **options)
    said = capfd.readouterr()
    assert PASSWORD not in str(failed.value) + said.out + said.err


def test_a_stream_goes_on_where_it_ended(
    spark: SparkSession, returning_broker: ReturningBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(4):
        lines = b"\n".join(bodies(500, part * 500))
        (folder / f"{part}.txt").write_bytes(lines)
        if part % 2:
            stream_all(spark, folder, returning_broker.url, tmp_path / "checkpoint", "orders")
    found = tally(returning_broker.url, "orders")
    assert (found.count, found.lost(bodies(2000))) == (2000, 0)
    batches = {str(each).rsplit("-", 4)[1] for each in found.ids}
    assert batches == {"0", "1", "2", "3"}


def stream_all(
    spark: SparkSession, folder: Path, url: str, checkpoint: Path, address: str, **options: str
) -> None:
    """Sends every line of the files there are, one file to a batch."""
    activate(spark)
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder))
    stream = lines.selectExpr("CAST(value AS BINARY) AS body").writeStream.format("amqp")
    stream = stream.option("url", url).option("address", address).options(**options)
    query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(240)
