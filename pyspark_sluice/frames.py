"""The sink as functions on a data frame, for a Spark without data sources in Python (3.5).

They are ``mapInArrow`` over the same sender: a row's message and its id are those that ``format("amqp")``
gives it, so a query may change from one to the other and keep its checkpoint.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from .encode import Encoder
from .errors import OptionError
from .options import Options, parse
from .sender import Counts
from .sending import QUERY, level_of, send, task_context, total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("pyspark_sluice")

# A task's Counts as a row.
_COUNTS = ", ".join(
    f"{each.name} {'DOUBLE' if each.type == 'float' else 'BIGINT'}" for each in fields(Counts)
)


def write_batch(frame: DataFrame, **options: object) -> Counts:
    """Send a frame's rows and return what became of them, as ``frame.write.format("amqp")`` does.

    Returns when each row was accepted, or was dealt with as ``onReject`` says. ``options`` are those of the
    sink. OptionError or EncodeError before anything is sent; what fails a task is raised as Spark raises it.
    """
    found = _parsed(options)
    counts = _send(frame, found, f"{found.query_id or uuid.uuid4()}-0")
    log.log(level_of(counts), "sent to %s: %s", found.address, counts)
    return counts


def foreach_batch(**options: object) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch`` that sends each micro-batch, as ``format("amqp")``.

    A batch that is done again after a restart has the same ids. ``options`` are those of the sink.
    OptionError where they make no sense, and from the function where Spark doesn't say which query it is,
    as with Spark Connect, and there is no option ``queryId``.
    """
    found = _parsed(options)

    def send_batch(frame: DataFrame, batch: int) -> None:
        query = found.query_id or _query_of(frame)
        if query is None:
            raise OptionError("Spark doesn't say which query this is: the option queryId has to")
        counts = _send(frame, found, f"{query}-{batch}")
        log.log(level_of(counts), "batch %d sent to %s: %s", batch, found.address, counts)

    return send_batch


def _parsed(options: dict[str, object]) -> Options:
    """Options as Spark would hand them over."""
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }
    return parse(texts, "sink")


def _query_of(frame: DataFrame) -> str | None:
    context = getattr(frame.sparkSession, "sparkContext", None)
    return None if context is None else context.getLocalProperty(QUERY)


def _send(frame: DataFrame, options: Options, prefix: str) -> Counts:
    """``prefix`` is that of the ids of all tasks."""
    Encoder(frame.schema, options, "")
    task = partial(_task, schema=frame.schema, options=options, prefix=prefix)
    rows = frame.mapInArrow(task, _COUNTS).collect()
    return total(Counts(**row.asDict()) for row in rows)


def _task(
    batches: Iterator[pa.RecordBatch], schema: StructType, options: Options, prefix: str
) -> Iterator[pa.RecordBatch]:
    """On an executor."""
    counts = send(batches, schema, options, f"{prefix}-{task_context().partitionId()}")
    yield pa.RecordBatch.from_pydict({name: [value] for name, value in asdict(counts).items()})
