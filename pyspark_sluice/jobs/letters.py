"""Dead letters as rows: why they died, where they were to go, who sent them.

The broker annotates what it makes a dead letter (broker/codec/message.py), the sink what was rejected
(pyspark_sluice/deadletter.py): both are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

REASON = ("x-opt-sluice-dead-letter-reason", "x-opt-dead-letter-reason")
ADDRESS = ("x-opt-sluice-original-address", "x-opt-dead-letter-address")
TIME = ("x-opt-sluice-dead-letter-time", "x-opt-dead-letter-time")
COUNT = "x-opt-sluice-dead-letter-count"
SCHEMA = (
    "message_id string, subject string, user_id binary, annotations map<string,string>,"
    " application_properties map<string,string>, body binary"
)
GROUP = ("address", "reason", "producer")
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters: LIKE patterns, and any condition in SQL over the columns; None is all."""

    address: str | None = None
    reason: str | None = None
    producer: str | None = None
    where: str | None = None

    def of(self, letters: DataFrame) -> DataFrame:
        """Those of the letters."""
        found = letters
        for name in GROUP:
            pattern = getattr(self, name)
            if pattern is not None:
                found = found.where(f.col(name).like(pattern))
        return found if self.where is None else found.where(self.where)


def letters(
    spark: SparkSession, queue: str, options: Mapping[str, str], producer_property: str | None
) -> DataFrame:
    """The letters in a queue, which stay there. Who sent one is its user-id, or a property of its own."""
    raw = spark.read.format("amqp").schema(SCHEMA).options(**options).load()
    note = f.col("annotations")
    producer = f.col("user_id").cast("string")
    if producer_property is not None:
        producer = f.coalesce(f.col("application_properties")[producer_property], producer)
    return raw.select(
        f.lit(queue).alias("queue"),
        "message_id",
        f.coalesce(*(note[name] for name in ADDRESS), f.lit(UNKNOWN)).alias("address"),
        f.coalesce(*(note[name] for name in REASON), f.lit(UNKNOWN)).alias("reason"),
        f.coalesce(producer, f.lit(UNKNOWN)).alias("producer"),
        _died().alias("died"),
        f.coalesce(note[COUNT].cast("int"), f.lit(0)).alias("times"),
        "subject",
        f.length("body").cast("long").alias("size"),
        "application_properties",
        f.col("body").cast("string").alias("text"),
    )


def _died() -> Column:
    """Written as a number of milliseconds, or as a time, by whoever turned the annotation into text."""
    told = f"coalesce(annotations['{TIME[0]}'], annotations['{TIME[1]}'])"
    return f.expr(f"coalesce(timestamp_millis(try_cast({told} AS BIGINT)), try_cast({told} AS TIMESTAMP))")


def grouped(found: DataFrame) -> DataFrame:
    """A row for each address, reason and producer, the largest first."""
    return (
        found.groupBy("queue", *GROUP)
        .agg(
            f.count(f.lit(1)).alias("letters"),
            f.sum("size").alias("bytes"),
            f.min("died").alias("first"),
            f.max("died").alias("last"),
            f.max("times").alias("times"),
            f.min("message_id").alias("sample"),
        )
        .orderBy(f.desc("letters"), *GROUP)
    )
