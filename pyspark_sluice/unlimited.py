"""The source for PySpark 4.0 and 4.1, which ask where the end is and say neither the start nor a limit.

1. Where a batch begins is known from the one planned last: Spark asks for the next end when it is through
   with that. So the law of ``stream.py`` holds: messages of a queue are settled by the question for what
   comes after them, and never before they were in a batch.
2. After a restart nobody says where the query stands until its next batch is planned. A queue's position
   therefore names the run that counted it: a batch begins with the run's first message if it starts at
   another run's position, and is empty if it ends there. The first batch of a run may have no rows.
3. ``maxRowsPerTrigger`` and ``maxBytesPerTrigger`` are kept, as the reader's own. The limits of a stream
   would need the start, so they are refused.
4. ``Trigger.AvailableNow`` and ``Once`` ask for one end, so that one batch has what one question takes. A
   queue's batch then stays unsettled, and comes again with the next run.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import __version__
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from .errors import OptionError
from .options import Options, named
from .position import Position, ids_of, offsets_of, position
from .source import SourceReader
from .stream import QueueReader
from .streamreader import StreamReader

log = logging.getLogger("pyspark_sluice")

NEEDS_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_RUN = "run"


class UnlimitedReader(DataSourceStreamReader):
    """Reads micro-batches of a queue or a stream. OptionError for options that need PySpark 4.2."""

    def __init__(self, options: Options, given: Mapping[str, str], schema: StructType) -> None:
        wrong = named(NEEDS_LIMITS, given)
        if wrong:
            raise OptionError(
                f"{', '.join(wrong)}: PySpark 4.2 or newer is needed, which tells a source where a batch"
                f" begins, and this is {__version__}"
            )
        self._source = SourceReader(options, given, schema)
        # Names this run in positions; the end of the batch planned last.
        self._run = secrets.randbits(48)
        self._planned: Position = {}

    def initialOffset(self) -> Position:  # noqa: N802  Spark's names, here and below
        reader = self._source.known()
        first = reader.initialOffset()
        self._planned = self._of_run(first) if isinstance(reader, QueueReader) else first
        return self._planned

    def latestOffset(self) -> Position:  # type: ignore[override]  # noqa: N802
        reader = self._source.known()
        limit = reader.getDefaultReadLimit()
        if isinstance(reader, StreamReader):
            return reader.latestOffset(self._planned, limit)
        return self._of_run(reader.latestOffset(self._planned or position(0), limit))

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        reader = self._source.known()
        if isinstance(reader, StreamReader):
            reader.check(start, offsets_of(end), ids_of(end))
        elif not self._is_of_run(end):
            if start != end:
                log.warning(
                    "a batch of an earlier run is repeated; its messages were not settled, so they are in the"
                    " queue and come with a later batch"
                )
            return []
        elif not self._is_of_run(start):
            start = position(0)
        self._planned = end
        return reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        return self._source.read(partition)

    def commit(self, end: Position) -> None:
        reader = self._source.known()
        if isinstance(reader, StreamReader) or self._is_of_run(end):
            reader.commit(end)

    def stop(self) -> None:
        self._source.stop()

    def _of_run(self, found: Position) -> Position:
        return found | {_RUN: self._run}

    def _is_of_run(self, found: Position) -> bool:
        return found.get(_RUN) == self._run
