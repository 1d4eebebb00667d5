"""What the sink does about faults, counted: rows in, messages out, lost, duplicates.

The broker is real and recognises duplicates by their ids but where the table says otherwise; what is killed
is killed with SIGKILL. A queue that stops its producers holds a task at a known place, so that no fault
depends on timing.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from proton import Message

from tests.spark.conftest import Fault, ReturningBroker
from tests.spark.reading import Tally, bodies, messages, tally
from tests.spark.test_sink import rows, stream_all, write
from tests.wire.conftest import StartBroker, wait_until
from tests.wire.people import settings_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SECONDS = 240.0
WORKER = re.compile(r"open from \S+, container 'spark-sink-(\d+)-")


class Running:
    """Something that goes on while a test does harm; ``result`` raises what it failed of."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as fault:  # noqa: BLE001  told to whoever waits
            self.failure = fault

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Until a condition holds, unless it ends before."""

        def held() -> bool:
            if self.is_done and self.failure is not None:
                raise self.failure
            return condition()

        wait_until(held, SECONDS, what)

    def result(self) -> None:
        """Waits for its end."""
        self._thread.join(2 * SECONDS)
        assert self.is_done
        if self.failure is not None:
            raise self.failure


class Draining:
    """Takes everything out of a queue for as long as something else runs."""

    def __init__(self, broker: ReturningBroker, queue: str, running: Running) -> None:
        self.found: list[Message] = []
        while not running.is_done:
            self.found += messages(broker.url, queue)
        self.found += messages(broker.url, queue)

    def row(self, fault: str, expected: list[bytes], remark: str = "") -> Fault:
        """What became of these rows."""
        tallied = Tally.of(self.found)
        lost, surplus = tallied.lost(expected), tallied.surplus(expected)
        return Fault(fault, "sink", len(expected), tallied.count, lost, surplus, remark)


def workers(broker: ReturningBroker) -> list[int]:
    """The processes that have sent so far, the newest last."""
    return [int(found) for found in WORKER.findall(broker.log)]


@pytest.mark.parametrize("queue", ["brief", "plain"])
@pytest.mark.parametrize("order", ["same", "another"])
def test_a_worker_killed_after_1000_of_4000_rows(
    spark: SparkSession, returning_broker: ReturningBroker, faults: list[Fault], order: str, queue: str
) -> None:
    """Its task is tried again, with its rows in the same order or in another."""
    broker = returning_broker
    frame = reordered(spark) if order == "another" else rows(spark, 4000)
    running = Running(lambda: write(frame, broker.url, address=queue))
    running.until(lambda: broker.depth(queue) == 1000, "1,000 of 4,000 rows to be sent")
    running.until(lambda: workers(broker) != [], "the log to be read")
    os.kill(workers(broker)[-1], signal.SIGKILL)
    running.until(lambda: len(workers(broker)) == 2, "another attempt")
    found = Draining(broker, queue, running)
    running.result()
    recognised = queue == "brief"
    row = found.row(
        f"worker killed -9 after 1,000 of 4,000, {order} order",
        bodies(4000),
        "retried, ids recognised" if recognised else "retried; no duplicate_window",
    )
    faults.append(row)
    assert (row.lost, row.duplicates) == (0, 0 if recognised else 1000)
    assert len({each.id for each in found.found}) == 4000


def reordered(spark: SparkSession) -> DataFrame:
    """4,000 rows that come the other way round when their task is tried again."""

    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield (
                batch.take(pyarrow.array(range(len(batch) - 1, -1, -1))) if context.attemptNumber() else batch
            )

    return rows(spark, 4000).mapInArrow(attempt, "body BINARY")


def test_a_broker_killed_under_a_running_query(
    spark: SparkSession, returning_broker: ReturningBroker, tmp_path: Path, faults: list[Fault]
) -> None:
    broker, expected = returning_broker, files(tmp_path / "in", 5)
    running = Running(lambda: stream_all(spark, tmp_path / "in", broker.url, tmp_path / "state", "slow"))
    running.until(lambda: broker.depth("slow") == 2500, "the third batch to be half sent")
    broker.kill()
    broker.start()
    found = Draining(broker, "slow", running)
    running.result()
    row = found.row("broker killed -9 and started again under a query", expected)
    faults.append(row)
    assert (row.lost, row.duplicates) == (0, 0)


def test_a_jvm_killed_between_and_inside_batches(
    returning_broker: ReturningBroker, java: str, tmp_path: Path, faults: list[Fault]
) -> None:
    broker, expected = returning_broker, files(tmp_path / "in", 5)
    with program(broker, tmp_path, "1 hour") as first:
        wait_until((tmp_path / "state/commits/0").exists, SECONDS, "the first batch")
        kill_jvm(first)
    assert broker.depth("slow") == 1000
    with program(broker, tmp_path, "now") as second:
        wait_until(lambda: broker.depth("slow") == 2500, SECONDS, "the third batch to be half sent")
        kill_jvm(second)
    with program(broker, tmp_path, "now") as third:
        running = Running(third.wait)
        found = Draining(broker, "slow", running)
        running.result()
        assert third.returncode == 0, third.stdout
    row = found.row("JVM killed -9 between batches, then inside one", expected, "from the checkpoint")
    faults.append(row)
    assert (row.lost, row.duplicates) == (0, 0)


def program(broker: ReturningBroker, folder: Path, trigger: str) -> subprocess.Popen[str]:
    """``streaming`` in a JVM of its own."""
    words = [broker.url, str(folder / "in"), str(folder / "state"), trigger]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.streaming", *words], stdout=subprocess.PIPE, text=True
    )


def kill_jvm(running: subprocess.Popen[str]) -> None:
    """With the program that began it, and without a word of farewell."""
    assert running.stdout is not None
    os.kill(int(running.stdout.readline()), signal.SIGKILL)
    running.kill()
    running.wait()


def files(folder: Path, count: int) -> list[bytes]:
    """Files of 1,000 lines each; the lines of all."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.txt").write_bytes(b"\n".join(bodies(1000, number * 1000)))
    return bodies(count * 1000)


@pytest.mark.parametrize("action", ["fail", "skip", "deadletter"])
def test_a_queue_that_rejects(
    spark: SparkSession, returning_broker: ReturningBroker, faults: list[Fault], action: str
) -> None:
    options = {"address": "full", "onReject": action}
    if action == "deadletter":
        options["deadLetterAddress"] = "rejected"
    running = Running(lambda: write(rows(spark, 2000), returning_broker.url, **options))
    if action == "fail":
        with pytest.raises(Exception, match="amqp:resource-limit-exceeded: the broker rejected a message"):
            running.result()
    else:
        running.result()
    kept = tally(returning_broker.url, "full")
    dead = tally(returning_broker.url, "rejected")
    everything = kept.bodies + dead.bodies
    lost = Tally(everything, kept.ids).lost(bodies(2000))
    surplus = Tally(everything, kept.ids).surplus(bodies(2000))
    remark = {
        "fail": "the query fails and says why",
        "skip": "skipped, counted and warned of",
        "deadletter": f"{dead.count:,} in deadLetterAddress",
    }[action]
    faults.append(
        Fault(f"rejecting queue, onReject={action}", "sink", 2000, everything.total(), lost, surplus, remark)
    )
    assert surplus == 0
    assert kept.count == 500
    assert lost == (0 if action == "deadletter" else 1500)


@pytest.mark.parametrize(
    "seconds", [3, pytest.param(120, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
)
def test_a_queue_that_is_stopped_for_a_while(
    spark: SparkSession, returning_broker: ReturningBroker, tmp_path: Path, faults: list[Fault], seconds: int
) -> None:
    broker, expected = returning_broker, files(tmp_path / "in", 3)
    producers(broker, "stop", "held")
    running = Running(lambda: stream_all(spark, tmp_path / "in", broker.url, tmp_path / "state", "held"))
    running.until(lambda: len(workers(broker)) > 0, "the first batch to begin")
    # How long the queue stays stopped is the fault itself.
    time.sleep(seconds)
    assert not running.is_done
    assert broker.depth("held") == 0
    producers(broker, "start", "held")
    found = Draining(broker, "held", running)
    running.result()
    row = found.row(f"queue stopped for {seconds} s under a query", expected, "the query waits, then goes on")
    faults.append(row)
    assert (row.lost, row.duplicates) == (0, 0)


def producers(broker: ReturningBroker, verb: str, queue: str) -> None:
    words = [sys.executable, "-m", "broker.cli.main", "producers", verb, queue, "-b", broker.url]
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def test_a_wrong_password(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path, faults: list[Fault]
) -> None:
    broker = start_broker(settings_for(tmp_path / "people", rules=""))
    (tmp_path / "password").write_text("wunderland")
    options = {"address": "orders", "user": "alice", "passwordFile": str(tmp_path / "password")}
    with pytest.raises(Exception, match="refused the login: user or password is wrong") as refused:
        write(rows(spark, 1000), broker.url, **options)
    assert "wunderland" not in str(refused.value)
    faults.append(Fault("wrong password", "sink", 1000, 0, 1000, 0, "the query fails and says why"))
