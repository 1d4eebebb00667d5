"""AMQP 1.0 queues and streams as sinks and sources of PySpark.

An ordinary AMQP client on Qpid Proton: nothing here imports anything else of the broker, so that a zip of
this folder is all that executors need (``--py-files``). Spark finds ``DefaultSource`` by itself where the
package is installed; elsewhere ``spark.dataSource.register(AmqpDataSource)``. PySpark 3.5 has no data sources
in Python: there are ``write_batch`` and ``foreach_batch``, which newer ones can use too.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .errors import SparkVersionError

if TYPE_CHECKING or find_spec("pyspark.sql.datasource") is not None:
    from .datasource import AmqpDataSource, DefaultSource, SluiceDataSource

if TYPE_CHECKING:
    from .frames import foreach_batch, write_batch

__all__ = ["AmqpDataSource", "DefaultSource", "SluiceDataSource", "foreach_batch", "write_batch"]


def __getattr__(name: str) -> Any:
    """Load the functions when they are first wanted: they need Proton, Spark's search for sources doesn't."""
    if name in ("foreach_batch", "write_batch"):
        from . import frames

        return getattr(frames, name)
    if name in __all__:
        from pyspark import __version__

        raise SparkVersionError(
            f"{name} needs PySpark 4.0 or newer, and this is {__version__}, which has no data sources in"
            " Python: write with pyspark_sluice.write_batch and foreach_batch"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
