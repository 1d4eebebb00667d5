"""What Spark is given to read with, before anybody knows whether the address is a queue or a stream.

Spark makes readers in several processes, most of them only to plan with. The broker is asked in the one that
first has to know, and never on an executor: there a partition says what it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from . import incoming
from .batch import BrowseReader
from .discovery import Node, find, told
from .errors import AmqpError, OptionError, UnansweredError, UnseenError
from .limits import ReadLimit, SupportsTriggerAvailableNow
from .management import Attributes
from .offsets import StreamOffsets
from .options import Options, check_source, named
from .position import Position
from .rangereader import StreamRange, read_range
from .stream import QueueReader
from .streamreader import StreamReader, StreamTable

log = logging.getLogger("pyspark_sluice")

Reader = QueueReader | StreamReader
# What bounds micro-batches. Jobs may have one set of options for a query and a table.
OF_QUERIES = (
    *("links", "maxRowsPerTrigger", "maxBytesPerTrigger", "rowsPerPartition"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
)


def find_with(
    broker: StreamOffsets, options: Options, given: Mapping[str, str], *, makes: bool = True
) -> Node:
    """What is read, asked of a broker where the options don't say. ``makes``: of a node that isn't there too.

    OptionError for options of the other type, and where the user may not see what it is.
    """

    def ask(questions: Sequence[tuple[str, str]]) -> list[Attributes | None]:
        try:
            answers = broker.attributes(questions, None)
        except UnseenError as fault:
            if told(options) is not None:
                raise
            raise OptionError(
                f"whether '{options.address}' is a queue or a stream can't be seen ({fault}): give"
                " sourceType, or the user the right manage-read"
            ) from None
        except UnansweredError as fault:
            hint = "" if told(options) else "; where sourceType says what the address is, it isn't asked"
            raise UnansweredError(f"{fault}{hint}") from None
        assert answers is not None, "an answer, or the connection's failure"
        return answers

    node = find(options, ask, broker.touch if makes else None)
    check_source(given, node.type, options.address)
    return node


def schema_of(options: Options, given: Mapping[str, str]) -> StructType:
    """The columns where the reader names none: those of a queue, too, where no broker answers yet."""
    kind = told(options)
    if kind is not None:
        check_source(given, kind, options.address)
    else:
        broker = StreamOffsets(options, once=True)
        try:
            kind = find_with(broker, options, given, makes=False).type
        except OptionError:
            raise
        except AmqpError:
            kind = "queue"
        finally:
            broker.close()
    return incoming.default_schema(stream=kind == "stream")


def check_schema(options: Options, given: Mapping[str, str], schema: StructType) -> None:
    """What can be said without a broker. ValueError, OptionError."""
    kind = told(options)
    if kind is not None:
        check_source(given, kind, options.address)
    incoming.check(schema, stream=kind != "queue")


class SourceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches of a queue or a stream. Made without connecting.

    ``given`` are the options as they were given, from which those of the other type are told.
    """

    def __init__(self, options: Options, given: Mapping[str, str], schema: StructType) -> None:
        check_schema(options, given, schema)
        if named(("maxTriggerDelay",), given) and options.min_offsets_per_trigger is None:
            log.warning("maxTriggerDelay does nothing without minOffsetsPerTrigger")
        self.options = options
        self.given = dict(given)
        self.schema = schema
        self._reader: Reader | None = None

    def __getstate__(self) -> dict[str, object]:
        """What an executor needs to read with."""
        return {"options": self.options, "given": self.given, "schema": self.schema, "_reader": None}

    def initialOffset(self) -> Position:  # noqa: N802  Spark's names, here and below
        return self.known().initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self.known().getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.known().prepareForTriggerAvailableNow()

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:  # noqa: N802
        return self.known().latestOffset(start, limit)

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        return None if self._reader is None else self._reader.reportLatestOffset()

    def commit(self, end: Position) -> None:
        self.known().commit(end)

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        return self.known().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        if isinstance(partition, StreamRange):
            return read_range(partition, self.options, self.schema)
        return QueueReader(self.options, self.schema).read(partition)

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()

    def known(self) -> Reader:
        """The reader of what the address is."""
        if self._reader is None:
            if told(self.options) == "queue":
                self._reader = QueueReader(self.options, self.schema)
                return self._reader
            broker = StreamOffsets(self.options)
            try:
                node = find_with(broker, self.options, self.given)
            finally:
                broker.close()
            if node.type == "queue":
                self._reader = QueueReader(self.options, self.schema)
            else:
                self._reader = StreamReader(self.options, self.schema, node.streams)
        return self._reader


class TableReader(DataSourceReader):
    """Reads a queue by browsing it, or a range of a stream. Made without connecting."""

    def __init__(self, options: Options, given: Mapping[str, str], schema: StructType) -> None:
        check_schema(options, given, schema)
        if options.subscription is not None:
            raise OptionError("subscription is of a query: a table would be empty")
        unused = named(OF_QUERIES, given)
        if unused:
            log.warning("%s: of a query; a table is read at once, without them", ", ".join(unused))
        self.options = options
        self.given = dict(given)
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        if told(self.options) == "queue":
            return BrowseReader(self.options, self.schema).partitions()
        broker = StreamOffsets(self.options)
        try:
            node = find_with(broker, self.options, self.given)
            if node.type == "stream":
                return StreamTable(self.options, node.streams).tasks(broker)
        finally:
            broker.close()
        return BrowseReader(self.options, self.schema).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        if isinstance(partition, StreamRange):
            return read_range(partition, self.options, self.schema)
        if partition.value is None:
            # Spark's stand-in for no partition at all: the range is empty.
            return iter(())
        return BrowseReader(self.options, self.schema).read(partition)
