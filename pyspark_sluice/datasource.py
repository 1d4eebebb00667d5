"""The data sources by the names they have in ``format``. PySpark 4.0 and newer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from .limits import HAS_LIMITS
from .options import parse

if TYPE_CHECKING:
    from .writer import BatchWriter, StreamWriter


class AmqpDataSource(DataSource):
    """``format("amqp")``. Only ``schema`` connects, where the options don't say whether the address is a
    queue or a stream; the others check what was asked for."""

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> StructType:
        from .source import schema_of

        return schema_of(parse(self.options, "source"), self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from .source import TableReader

        return TableReader(parse(self.options, "source"), self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        options = parse(self.options, "source")
        if not HAS_LIMITS:
            from .unlimited import UnlimitedReader

            return UnlimitedReader(options, self.options, schema)
        from .source import SourceReader

        return SourceReader(options, self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from .writer import BatchWriter

        return BatchWriter(parse(self.options, "sink"), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  Spark's name
        from .writer import StreamWriter

        return StreamWriter(parse(self.options, "sink"), schema)


class SluiceDataSource(AmqpDataSource):
    """The same by its other name, ``format("sluice")``."""

    @classmethod
    def name(cls) -> str:
        return "sluice"


class DefaultSource(AmqpDataSource):
    """What Spark looks for in modules whose names begin with ``pyspark_``."""
