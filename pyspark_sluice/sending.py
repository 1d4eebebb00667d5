"""One Spark task's rows on their way to a broker, whichever of Spark's interfaces brought them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import astuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from .encode import Encoder
from .options import Options
from .sender import Counts, Sender

# Where Spark tells a thread, and a task, which query and which micro-batch it works for.
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def send(batches: Iterator[pa.RecordBatch], schema: StructType, options: Options, prefix: str) -> Counts:
    """One task: returns when every row was accepted, or was dealt with as ``onReject`` says."""
    encoder = Encoder(schema, options, prefix)
    sender: Sender | None = None
    try:
        for batch in batches:
            if sender is None and batch.num_rows:
                sender = Sender(options, "spark-sink")
                sender.start()
            if sender is not None:
                sender.put(encoder.encode(batch))
        return sender.finish() if sender is not None else Counts()
    finally:
        if sender is not None:
            sender.close()


def total(found: Iterable[Counts]) -> Counts:
    """The sum over all tasks."""
    rows = [astuple(each) for each in found]
    return Counts(*(sum(column) for column in zip(*rows, strict=True))) if rows else Counts()


def level_of(counts: Counts) -> int:
    """Nobody sees less than a warning of Spark's workers, and of rows that went elsewhere one has to know."""
    return logging.WARNING if counts.skipped or counts.dead_lettered else logging.INFO


def task_context() -> TaskContext:
    """Spark's task that this process is working on."""
    found = TaskContext.get()
    assert found is not None, "not in a Spark task"
    return found
