"""A queue as a table: its messages are looked at and stay where they are.

One link can't be cut in parts, so one task reads all of it, on whichever executor. The end is where the
broker, asked to use up the credit, has no more to send: what arrives meanwhile may be seen or not.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from . import incoming
from .decode import Decoder
from .options import Options
from .receiver import Receiver

# Rows and bytes of a record batch, all of which a worker holds; the receiver says by how much it may be more.
ROWS, BYTES = 5000, 16 << 20


class BrowseReader(DataSourceReader):
    """Made without connecting."""

    def __init__(self, options: Options, schema: StructType) -> None:
        incoming.check(schema)
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A connection lost on the way fails the task, which Spark begins anew."""
        decoder = Decoder(self.schema, lenient=self.options.on_malformed == "null")
        receiver = Receiver(self.options, copies=True)
        receiver.start()
        try:
            while True:
                messages = receiver.take(ROWS, BYTES, wait_s=0.0, patience_s=None) or []
                if messages:
                    yield decoder.batch(b"".join(messages), array("q", map(len, messages)))
                # Not where a take is empty: with producers that don't pause there might be no such one.
                if receiver.dry or not messages:
                    return
        finally:
            receiver.close()
