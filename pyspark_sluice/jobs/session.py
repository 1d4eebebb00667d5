"""The Spark session of a job, and files that it leaves where executors leave theirs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from broker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """A session for one job, ended with it; one that was there already is used and left as it is."""
    found = SparkSession.getActiveSession()
    if found is not None:
        yield found
        return
    builder = SparkSession.builder.appName(f"sluice-{name}")
    # Progress is told by the job itself; rows that carry a whole load travel a few at a time; a query and
    # what is made of it meanwhile each have a pool.
    defaults = {
        "spark.scheduler.mode": "FAIR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    }
    for key, value in defaults.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def is_local(spark: SparkSession) -> bool:
    """Whether every task runs on this machine."""
    return (spark.sparkContext.master or "").startswith("local")


def check_shared(spark: SparkSession, *paths: str) -> None:
    """OperatorError for a path of this machine only, where executors may be on others."""
    for path in paths:
        if not is_local(spark) and not urlsplit(path).scheme:
            raise OperatorError(
                f"{path}: executors may run on other machines; name a place all of them reach, with its"
                " scheme (hdfs:, s3a:, or file: if it is mounted everywhere)"
            )


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """A small file on whatever file system the path names, in place of one that is there."""
    jvm, jsc = spark._jvm, spark._jsc
    assert jvm is not None
    where = jvm.org.apache.hadoop.fs.Path(path)
    files = where.getFileSystem(jsc.hadoopConfiguration())
    # No checksum beside it: people open these.
    files.setWriteChecksum(False)
    out = files.create(where, True)
    try:
        out.write(bytearray(text.encode()))
    finally:
        out.close()


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is anything at a path."""
    jvm = spark._jvm
    assert jvm is not None
    where = jvm.org.apache.hadoop.fs.Path(path)
    return bool(where.getFileSystem(spark._jsc.hadoopConfiguration()).exists(where))


def files_of(spark: SparkSession, path: str) -> list[str]:
    """The files in a folder that a writer is through with; none where there is no such folder."""
    if not exists(spark, path):
        return []
    jvm = spark._jvm
    assert jvm is not None
    where = jvm.org.apache.hadoop.fs.Path(path)
    found = where.getFileSystem(spark._jsc.hadoopConfiguration()).listStatus(where)
    names = [(each.getPath().getName(), each) for each in found if each.isFile()]
    return [each.getPath().toString() for name, each in names if not name.startswith(("_", "."))]


def delete(spark: SparkSession, paths: Iterable[str]) -> None:
    """Files that are done with."""
    jvm = spark._jvm
    assert jvm is not None
    for path in paths:
        where = jvm.org.apache.hadoop.fs.Path(path)
        where.getFileSystem(spark._jsc.hadoopConfiguration()).delete(where, False)
