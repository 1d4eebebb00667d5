"""Files of rows as a job's command line names them: CSV with a head, JSON lines or Parquet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from broker.errors import OperatorError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("auto", "csv", "json", "parquet")
_ENDS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
# What Spark unpacks by itself, going by the path's end too.
_PACKED = (".gz", ".bz2", ".zst", ".deflate", ".snappy", ".lz4")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How files are read."""
    parser.add_argument("--format", choices=FORMATS, default="auto", help="of the files (by the path's end)")
    parser.add_argument(
        "--null", default="", metavar="TEXT", help="what stands for no value in CSV (nothing)"
    )
    parser.add_argument(
        "--schema",
        metavar="DDL",
        help="columns and their types: 'time_hour timestamp, origin string, dep_delay int' (CSV: found out by"
        " a first look at all of it)",
    )


def read(spark: SparkSession, path: str, args: argparse.Namespace) -> DataFrame:
    """The rows. OperatorError for a format that can't be told, or a column that isn't there."""
    kind = args.format if args.format != "auto" else _kind(path)
    if kind == "csv":
        reader = spark.read.option("header", True).option("nullValue", args.null)
        found = reader.option("inferSchema", args.schema is None).csv(path)
    elif kind == "json":
        found = spark.read.json(path)
    else:
        found = spark.read.parquet(path)
    return found if args.schema is None else as_schema(found, structure(args.schema))


def check_columns(rows: DataFrame, *names: str | None) -> None:
    """OperatorError for a column that Spark doesn't find: it looks in any case, and within structs."""
    for name in filter(None, names):
        try:
            rows.select(name)
        except AnalysisException:
            raise OperatorError(f"no column {name}; there are {', '.join(rows.columns)}") from None


def _kind(path: str) -> str:
    name = path.rstrip("/")
    packing = next((end for end in _PACKED if name.endswith(end)), "")
    for end, kind in _ENDS.items():
        if name.removesuffix(packing).endswith(end):
            return kind
    raise OperatorError(f"{path}: CSV, JSON or Parquet? Say --format")


def structure(text: str) -> StructType:
    """Columns as the command line has them."""
    found = StructType.fromDDL(text)
    if not isinstance(found, StructType):
        raise OperatorError(f"{text!r} are no columns with their types")
    return found


def as_schema(rows: DataFrame, schema: StructType) -> DataFrame:
    """Only these columns, as these types, by name."""
    missing = [field.name for field in schema.fields if field.name not in rows.columns]
    if missing:
        raise OperatorError(f"no column {', '.join(missing)}; there are {', '.join(rows.columns)}")
    return rows.select(*(f.col(field.name).cast(field.dataType) for field in schema.fields))
