"""Spark's writers: a task of a batch write or of a micro-batch, sent and accepted, or failed."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import astuple, dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from .encode import Encoder
from .errors import OptionError
from .options import Options
from .sender import Counts, Sender

log = logging.getLogger("pyspark_sluice")

# Where Spark tells a task which query and which micro-batch it works for.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """What became of one task's rows."""

    counts: Counts


def send(batches: Iterator[pa.RecordBatch], schema: StructType, options: Options, prefix: str) -> Sent:
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
        return Sent(sender.finish() if sender is not None else Counts())
    finally:
        if sender is not None:
            sender.close()


def total(messages: list[WriterCommitMessage | None]) -> Counts:
    """The sum over all tasks."""
    found = [astuple(each.counts) for each in messages if isinstance(each, Sent)]
    return Counts(*(sum(column) for column in zip(*found, strict=True))) if found else Counts()


def _level(counts: Counts) -> int:
    """Nobody sees less than a warning of Spark's workers, and of rows that went elsewhere one has to know."""
    return logging.WARNING if counts.skipped or counts.dead_lettered else logging.INFO


class BatchWriter(DataSourceArrowWriter):
    """``df.write.format("amqp")``. Only ``append``: a queue is not replaced."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a queue can't be overwritten: use mode('append')")
        Encoder(schema, options, "")
        self.options = options
        self.schema = schema
        # Made on the driver, so that every attempt at a task has the same ids.
        self.query_id = options.query_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return send(iterator, self.schema, self.options, f"{self.query_id}-0-{_context().partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        counts = total(messages)
        log.log(_level(counts), "sent to %s: %s", self.options.address, counts)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("amqp")``: a batch that is done again after a restart has the same ids."""

    def __init__(self, options: Options, schema: StructType) -> None:
        Encoder(schema, options, "")
        self.options = options
        self.schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        context = _context()
        query = self.options.query_id or context.getLocalProperty(_QUERY)
        batch = context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise OptionError("Spark doesn't say which query and batch this is: see queryId")
        return send(iterator, self.schema, self.options, f"{query}-{batch}-{context.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        counts = total(messages)
        log.log(_level(counts), "batch %d sent to %s: %s", batchId, self.options.address, counts)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        log.warning("batch %d failed; what was sent of it is sent again under the same ids", batchId)


def _context() -> TaskContext:
    found = TaskContext.get()
    assert found is not None, "not in a Spark task"
    return found
