"""Streaming queries over a queue for tests: what they saw, and batches that end when a test lets them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.wire.conftest import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECONDS = 120.0


def stream_of(spark: SparkSession, url: str, address: str, **options: str) -> DataFrame:
    """The queue as a stream."""
    reader = spark.readStream.format("amqp").option("url", url).option("address", address)
    return reader.options(**options).load()


class Watched:
    """A query that notes the ids of every batch. ``stepwise``: a batch goes on when ``step`` says so."""

    def __init__(
        self,
        stream: DataFrame,
        checkpoint: Path,
        *,
        stepwise: bool = False,
        available_now: bool = False,
        every: str = "",
    ) -> None:
        self.batches: list[list[str]] = []
        self._stepwise = stepwise
        self._steps = threading.Semaphore(0)
        writer = stream.writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if available_now:
            writer = writer.trigger(availableNow=True)
        if every:
            writer = writer.trigger(processingTime=every)
        self.query: StreamingQuery = writer.start()

    @property
    def ids(self) -> list[str]:
        """Of all batches."""
        return [name for batch in list(self.batches) for name in batch]

    def step(self) -> None:
        """The batch that waits, or the next one, goes on."""
        self._steps.release()

    def run_free(self) -> None:
        """No batch waits any more."""
        self._stepwise = False
        self._steps.release(1000)

    def await_batch(self, number: int) -> None:
        """Until batch ``number``, from 1, has begun."""
        self.wait(lambda: len(self.batches) >= number, f"batch {number}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until it holds; at once what the query failed of, if it did."""

        def held() -> bool:
            failure = self.query.exception()
            if failure is not None:
                raise failure
            return condition()

        wait_until(held, SECONDS, what)

    def stop(self) -> None:
        """The query, and whoever waits."""
        self.run_free()
        self.query.stop()

    def _on_batch(self, frame: DataFrame, number: int) -> None:
        names = [row.message_id for row in frame.select("message_id").collect()]
        if names:
            self.batches.append(names)
            if self._stepwise:
                self._steps.acquire()
