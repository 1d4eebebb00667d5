"""Spark's writers: a task of a batch write or of a micro-batch, sent and accepted, or failed."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from .encode import Encoder
from .errors import OptionError
from .options import Options
from .sender import Counts
from .sending import BATCH, QUERY, level_of, send, task_context, total

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, DataSourceArrowWriter):
        """PySpark 4.0 has no such class, but gives every writer that is a ``DataSourceArrowWriter`` Arrow's
        batches, that of a stream too."""


log = logging.getLogger("pyspark_sluice")


@dataclass
class Sent(WriterCommitMessage):
    """What became of one task's rows."""

    counts: Counts


def _sum(messages: list[WriterCommitMessage | None]) -> Counts:
    return total(each.counts for each in messages if isinstance(each, Sent))


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
        prefix = f"{self.query_id}-0-{task_context().partitionId()}"
        return Sent(send(iterator, self.schema, self.options, prefix))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        counts = _sum(messages)
        log.log(level_of(counts), "sent to %s: %s", self.options.address, counts)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("amqp")``: a batch that is done again after a restart has the same ids."""

    def __init__(self, options: Options, schema: StructType) -> None:
        Encoder(schema, options, "")
        self.options = options
        self.schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        context = task_context()
        query = self.options.query_id or context.getLocalProperty(QUERY)
        batch = context.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise OptionError("Spark doesn't say which query and batch this is: see queryId")
        return Sent(send(iterator, self.schema, self.options, f"{query}-{batch}-{context.partitionId()}"))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        counts = _sum(messages)
        log.log(level_of(counts), "batch %d sent to %s: %s", batchId, self.options.address, counts)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        log.warning("batch %d failed; what was sent of it is sent again under the same ids", batchId)
