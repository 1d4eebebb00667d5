"""Reading the topic and sizing what it told: neither waits for the other. Spark is a stand-in here."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from unittest.mock import MagicMock

import pytest

from broker.errors import OperatorError
from pyspark_sluice.jobs import connector, events, follow

pytestmark = pytest.mark.flow

PATIENCE_S = 10.0


class Query:
    """Runs until it is stopped; ``watch`` is told to wait for that."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.stop = self.ended.set


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Query:
    found = Query()
    monkeypatch.setattr(follow, "_read", lambda spark, args: found)
    monkeypatch.setattr(follow, "watch", lambda query, tell: query.ended.wait(PATIENCE_S))
    monkeypatch.setattr(follow, "gather", lambda spark, out: None)
    monkeypatch.setattr(follow, "exists", lambda spark, path: True)
    monkeypatch.setattr(events, "last", lambda lines, seconds: lines)
    return found


def arguments(every: float) -> argparse.Namespace:
    return argparse.Namespace(
        history="amqp://127.0.0.1", out="/nowhere", every=every, last=60.0, option=[("user", "ana")]
    )


def followed(size: Callable[[object], None], every: float = 0.01) -> MagicMock:
    spark = MagicMock()
    follow.follow(spark, arguments(every), size)
    return spark


def test_the_topic_is_read_every_second_however_seldom_it_is_sized(monkeypatch: pytest.MonkeyPatch) -> None:
    told = MagicMock()
    monkeypatch.setattr(connector, "register", lambda spark: None)
    monkeypatch.setattr(connector, "with_options", lambda builder, options: told)
    follow._read(MagicMock(), arguments(every=300.0))
    writer = told.load.return_value.writeStream.foreachBatch.return_value.option.return_value
    writer.trigger.assert_called_once_with(processingTime="1 seconds")


def test_it_is_sized_again_and_again_beside_the_query(query: Query) -> None:
    threads = []

    def size(lines: object) -> None:
        threads.append(threading.current_thread().name)
        if len(threads) == 3:
            query.stop()

    followed(size)
    assert set(threads) == {follow.SIZING}


def test_a_history_of_nothing_yet_is_told_and_tried_again(
    query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    times = []

    def size(lines: object) -> None:
        times.append(1)
        if len(times) == 2:
            query.stop()
        raise OperatorError("no sample")

    followed(size)
    # Another may begin before the query is seen to have ended.
    assert capsys.readouterr().err.count("no sample") == len(times) >= 2


def test_sizing_that_fails_ends_the_job_with_its_reason(query: Query) -> None:
    def size(lines: object) -> None:
        raise RuntimeError("no space left")

    with pytest.raises(RuntimeError, match="no space left"):
        followed(size)
    assert query.ended.is_set()


def test_the_end_cancels_what_is_being_sized(query: Query) -> None:
    """Its failing then is nobody's concern."""
    cancelled = threading.Event()

    def size(lines: object) -> None:
        query.stop()
        assert cancelled.wait(PATIENCE_S)
        raise RuntimeError("the job was cancelled")

    spark = MagicMock()
    spark.sparkContext.cancelJobGroup.side_effect = lambda group: cancelled.set()
    follow.follow(spark, arguments(0.01), size)
    spark.sparkContext.cancelJobGroup.assert_called_with(follow.SIZING)
