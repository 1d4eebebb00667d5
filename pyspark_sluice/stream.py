"""A queue as a stream: micro-batches whose read limit is the links' credit.

Lives in the one process that the driver keeps for a query; ``read`` alone runs on executors. How nothing is
lost:

1. ``latestOffset`` takes messages and counts them; the count is the position Spark keeps in the checkpoint.
2. ``partitions`` hands their bytes to the executors. The queue still holds all of them, unsettled.
3. They are settled when Spark says that it is through with their batch: by ``commit``, or by asking for what
   comes *after* them. The second is what counts, since the last batch of a run is never committed.
4. Whoever dies before that gives them back to the queue. A batch that Spark repeats after a restart is
   empty, and its messages come with a later one: again, if the first run had already written them. So nothing
   is lost, and at most one batch comes twice, with the same message ids.

The batch that Spark repeats must not be filled with other messages: a sink that knows it has written that
batch drops it.
"""

from __future__ import annotations

import logging
import signal
import threading
import types
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from . import incoming
from .decode import Decoder
from .limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from .options import Options
from .position import counted, position
from .receiver import Receiver

log = logging.getLogger("pyspark_sluice")

# How long an empty queue keeps a trigger waiting, and a broker that can't be reached: meanwhile a query that
# is to stop can't.
IDLE_S, PATIENCE_S = 0.2, 2.0
DEPTH_S = 1.0
# A partition goes to its task in one of Spark's messages (spark.rpc.message.maxSize, by default 128 MB).
PARTITION_BYTES = 16 << 20
# Spark's way to say "all there is"; a batch still has to fit into the driver's memory and a frame of ours.
EVERYTHING = 1 << 30


class Encoded(InputPartition):
    """Some messages of a batch, as they came: one behind the other, with the length of each."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self.buffer = b"".join(messages)
        self.sizes = array("Q", map(len, messages))


def parts(messages: Sequence[bytes], rows: int, size: int) -> Iterator[Sequence[bytes]]:
    """They in their order, so many and about so many bytes at a time; one that is larger goes alone."""
    begin = held = 0
    for at, message in enumerate(messages):
        if at > begin and (at - begin == rows or held + len(message) > size):
            yield messages[begin:at]
            begin, held = at, 0
        held += len(message)
    if begin < len(messages):
        yield messages[begin:]


class QueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made without connecting: Spark makes one only to see what it can do, and one on each executor."""

    def __init__(self, options: Options, schema: StructType) -> None:
        incoming.check(schema)
        self.options = options
        self.schema = schema
        self._receiver: Receiver | None = None
        # Taken and not settled, the oldest first, and the position of that one.
        self._batch: list[bytes] = []
        self._first = 0
        # Of a run that is to end with what was there: how much that was, and the position where it ends.
        self._ahead: int | None = None
        self._target: int | None = None
        # What SIGTERM did before a connection had to be closed first.
        self._terminated: Callable[[int, types.FrameType | None], Any] | int | None = signal.SIG_DFL

    def __getstate__(self) -> dict[str, object]:
        """What an executor needs to read with: no connection, no messages."""
        return {"options": self.options, "schema": self.schema}

    # --- positions

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's names, here and below
        return position(0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.max_rows_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The run ends when as many messages were taken as there are now, or none is left."""
        depth = self._connected().depth(self.options.connect_timeout)
        self._ahead, self._target = EVERYTHING if depth is None else depth.messages, None
        if depth is None:
            log.warning(
                "how many messages '%s' has can't be seen: the run ends when it has read all there is",
                self.options.address,
            )

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        begun = counted(start)
        self._done(begun)
        if self._batch:
            # Taken before, and not in a batch yet.
            return position(self._first + len(self._batch))
        self._first = begun
        self._batch = self._take(begun, *self._limits(limit))
        return position(begun + len(self._batch))

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Where a query would be that had taken all, the queue's depth, and how far behind this query is."""
        if self._receiver is None or self._receiver.failure is not None:
            return None
        here = self._first + len(self._batch)
        depth = self._receiver.depth(DEPTH_S)
        if depth is None:
            return position(here)
        return position(here + depth.ready) | {"depth": depth.messages, "lag": depth.ready}

    def commit(self, end: dict[str, int]) -> None:
        self._done(counted(end))

    # --- batches

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, stop = counted(start), counted(end)
        if begin == stop:
            return []
        if begin < self._first or stop > self._first + len(self._batch):
            log.warning(
                "the batch from %d to %d is repeated; its messages were not settled, so they are in the queue"
                " and come with a later batch",
                begin,
                stop,
            )
            return []
        messages = self._batch[begin - self._first : stop - self._first]
        return [Encoded(part) for part in parts(messages, self.options.rows_per_partition, PARTITION_BYTES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        assert isinstance(partition, Encoded)
        decoder = Decoder(self.schema, lenient=self.options.on_malformed == "null")
        yield decoder.batch(partition.buffer, partition.sizes)

    def stop(self) -> None:
        """What isn't settled goes back to the queue at once, not when the broker misses us."""
        if self._receiver is not None:
            if threading.current_thread() is threading.main_thread():
                # Spark, having hung up, sends one right behind.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            receiver, self._receiver = self._receiver, None
            try:
                receiver.close()
            finally:
                if threading.current_thread() is threading.main_thread():
                    # A process that is started from here on would inherit that the signal is ignored.
                    signal.signal(signal.SIGTERM, self._terminated)

    # --- inside

    def _done(self, until: int) -> None:
        """Everything before ``until`` is in batches that Spark is through with."""
        count = min(max(until - self._first, 0), len(self._batch))
        if count and self._receiver is not None:
            self._receiver.settle(count)
        del self._batch[:count]
        self._first += count

    def _take(self, begun: int, rows: int, size: int | None) -> list[bytes]:
        if self._ahead is None:
            # None yet, perhaps: Spark asks again, and may be told to stop in between.
            return self._connected().take(rows, size, wait_s=IDLE_S, patience_s=PATIENCE_S) or []
        if self._target is None:
            self._target = begun + self._ahead
        rows = min(rows, self._target - begun)
        if rows <= 0:
            return []
        receiver = self._connected()
        taken = receiver.take(rows, size, wait_s=0.0, patience_s=None) or []
        # Others took some of it; or nobody knows how much it was, and producers may never pause.
        if not taken or (self._ahead == EVERYTHING and receiver.empty):
            self._target = begun + len(taken)
        return taken

    def _limits(self, limit: ReadLimit) -> tuple[int, int | None]:
        """Rows and bytes that a batch may have."""
        rows, size = EVERYTHING, None
        if isinstance(limit, ReadMaxRows):
            rows, size = limit.max_rows, self.options.max_bytes_per_trigger
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        elif not isinstance(limit, ReadAllAvailable):
            rows, size = self.options.max_rows_per_trigger, self.options.max_bytes_per_trigger
        return rows, size

    def _connected(self) -> Receiver:
        if self._receiver is None:
            if threading.current_thread() is threading.main_thread():
                self._terminated = signal.signal(signal.SIGTERM, _leave)
            self._receiver = Receiver(self.options)
            self._receiver.start()
        if self._receiver.failure is not None:
            raise self._receiver.failure
        return self._receiver


def _leave(number: int, frame: types.FrameType | None) -> None:
    """Ends the process by way of ``stop``."""
    raise SystemExit(128 + number)
