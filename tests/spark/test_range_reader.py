"""A range of a stream as a task reads it, without Spark: exactly its offsets, whatever happens meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from proton import Message, symbol
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from broker.client.request import Management
from broker.codec.offsets import with_offset
from pyspark_sluice import rangereader
from pyspark_sluice.errors import AmqpError, DataLossError, RefusedError
from pyspark_sluice.filters import put_filters
from pyspark_sluice.offsets import StreamOffsets, offset_of
from pyspark_sluice.rangereader import RangeReceiver, StreamRange, Taken, read_range
from pyspark_sluice.ranges import Range
from tests.spark.conftest import ReturningBroker, StartBroker
from tests.spark.feeding import consumers, feed, names, source
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.seeing import await_number, number_of

POLICIES = """policies:
  - {match: "flights", kind: stream, durable: true}
  - {match: "short", kind: stream, durable: true, max_size: 8MB}
  - {match: "memory", kind: stream, max_count: 100}
"""
# A checkpoint comes within a second where there is something for it to do.
STILL_S = 1.5
SCHEMA = (
    StructType()
    .add("message_id", StringType())
    .add("offset", LongType())
    .add("body", BinaryType())
    .add("partition", IntegerType())
)


def without_chunks(data: object, *, chunk: object, **more: Any) -> None:
    """As a receiver asks that knows no chunks, or one whose broker doesn't."""
    put_filters(data, **more)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rangereader, "put_filters", without_chunks)


def split(taken: Taken) -> list[bytes]:
    ends = [*accumulate(map(int, taken.sizes))]
    return [taken.data[end - int(size) : end] for end, size in zip(ends, taken.sizes, strict=True)]


@pytest.fixture
def streams(start_broker: StartBroker) -> RunningBroker:
    return start_broker(policies=POLICIES)


@pytest.fixture
def returning_streams(tmp_path: Path) -> Iterator[ReturningBroker]:
    broker = ReturningBroker(tmp_path / "returning", POLICIES, "")
    yield broker
    broker.stop()


def rows(
    url: str,
    start: int,
    end: int,
    address: str = "flights",
    partition: int = 0,
    stream_id: int | None = None,
    **given: str,
) -> list[tuple[str, int]]:
    """The ids and offsets of a range, checked: the partition's number is on each."""
    found: list[tuple[str, int]] = []
    options = source(url, address, **given)
    for batch in read_range(StreamRange(address, Range(partition, start, end), stream_id), options, SCHEMA):
        assert set(batch.column("partition").to_pylist()) == {partition}
        ids, offsets = batch.column("message_id").to_pylist(), batch.column("offset").to_pylist()
        found += zip(ids, offsets, strict=True)
    return found


def expected(start: int, end: int) -> list[tuple[str, int]]:
    return list(zip(names(end - start, start), range(start, end), strict=True))


def fill_segments(broker: RunningBroker, first: int = 0) -> int:
    """Messages into `short` until retention has removed some; how many were sent in all."""
    sent = first
    while sent == first or number_of(broker, "short", "first_offset") == 0:
        feed(broker.url, "short", names(400, sent), 10_000, durable=True)
        sent += 400
        assert sent < 20_000, "retention removed nothing"
    # More goes with the next checkpoint, and then no more.
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < STILL_S:
        first_now = number_of(broker, "short", "first_offset")
        if first_now != seen:
            seen, since = first_now, time.monotonic()
        time.sleep(0.1)
    return sent


def test_the_offset_is_found_wherever_it_stands() -> None:
    bare = b"\x00\x53\x75\xa0\x02hi"
    assert offset_of(with_offset(bare, 7)) == 7
    assert offset_of(bare) is None
    full = Message(body="x", id="m", durable=True, annotations={symbol("x-opt-a"): {"deep": [1, "two"]}})
    full.instructions = {symbol("x-opt-b"): "c"}
    full.annotations = {symbol("x-opt-c"): b"\xa3\x13x-opt-sluice-offset\x80" + bytes(8)}
    assert offset_of(with_offset(bytes(full.encode()), 1 << 40)) == 1 << 40
    # A sender may write its sections' descriptors in any of three ways.
    long = b"\x00\x80" + bytes(7) + b"\x70" + b"\x45" + with_offset(bare, 300)
    assert offset_of(long) == 300


def test_exactly_the_range_is_read_and_no_more_is_sent(streams: RunningBroker) -> None:
    feed(streams.url, "flights", names(12_000), durable=True)
    assert rows(streams.url, 0, 12_000) == expected(0, 12_000)
    assert rows(streams.url, 4711, 4712) == expected(4711, 4712)
    before = number_of(streams, "flights", "delivered")
    assert rows(streams.url, 50, 5550) == expected(50, 5550)
    await_number(streams, "flights", "delivered", before + 5500)
    assert number_of(streams, "flights", "stream_msgs") == 12_000


def remake(broker: RunningBroker, address: str, msgs: int) -> None:
    """A stream is deleted, and made anew with so many messages."""
    with Management(broker.url) as management:
        management.call("DELETE", "org.sluice.queue", address)
    feed(broker.url, address, names(msgs, 5000), durable=True)


def test_a_range_of_a_stream_that_was_made_anew_is_data_loss(
    streams: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    feed(streams.url, "flights", names(100), durable=True)
    before = number_of(streams, "flights", "stream_id")
    assert rows(streams.url, 0, 100, stream_id=before) == expected(0, 100)
    # One that is longer has other messages at the same offsets; one that is shorter has yet to come to them.
    for msgs in (200, 10):
        remake(streams, "flights", msgs)
        with pytest.raises(DataLossError, match=r"offsets 50 to 99 were to be read of a stream that is gone"):
            rows(streams.url, 50, 100, stream_id=before)
        # Nor are there any of the new one's.
        assert rows(streams.url, 50, 100, stream_id=before, failOnDataLoss="false") == []
    assert rows(streams.url, 50, 100, stream_id=before, failOnDataLoss="false") == []
    assert "it was made anew meanwhile" in caplog.text
    now = number_of(streams, "flights", "stream_id")
    assert len(rows(streams.url, 0, 10, stream_id=now)) == 10


def read_all(found: RangeReceiver) -> None:
    while len(found.take(500, 1 << 20).sizes):
        pass


def test_a_stream_in_memory_that_its_broker_loses_while_it_is_read_is_data_loss(
    returning_streams: ReturningBroker,
) -> None:
    broker = returning_streams
    feed(broker.url, "memory", names(50))
    assert broker.running is not None
    wanted = StreamRange("memory", Range(0, 0, 80), number_of(broker.running, "memory", "stream_id"))
    found = RangeReceiver(source(broker.url, "memory"), wanted)
    found.start()
    try:
        wait_until(lambda: found.next == 50, 20, "what there is")
        broker.kill()
        broker.start()
        # Offsets go on as if nothing had happened.
        feed(broker.url, "memory", names(100, 5000))
        with pytest.raises(DataLossError, match="were to be read of a stream that is gone"):
            read_all(found)
    finally:
        found.close()


@contextmanager
def receiving(url: str, start: int, end: int, **given: str) -> Iterator[RangeReceiver]:
    found = RangeReceiver(source(url, "flights", **given), StreamRange("flights", Range(0, start, end)))
    found.start()
    try:
        yield found
    finally:
        found.close()


@pytest.mark.usefixtures("one_by_one")
def test_a_task_that_takes_nothing_is_sent_no_more_than_it_may_hold(
    streams: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rangereader, "AHEAD_ROWS", 300)
    monkeypatch.setattr(rangereader, "AHEAD_BYTES", 50_000)
    feed(streams.url, "flights", names(2000), 1000, durable=True)
    with receiving(streams.url, 0, 2000) as found:
        # Forty-odd messages have so many bytes; as many as that, or the first hundred, are on their way.
        wait_until(
            lambda: {row["credit"] for row in consumers(streams.url, "flights")} == {0}, 20, "no credit"
        )
        delivered = number_of(streams, "flights", "delivered")
        assert delivered <= 150
        messages: list[bytes] = []
        while len((taken := found.take(30, 20_000)).sizes):
            assert len(taken.sizes) <= 30
            assert len(taken.data) <= 20_000
            messages += split(taken)
        assert [offset_of(each) for each in messages] == list(range(2000))


def test_a_task_that_takes_nothing_is_sent_no_more_chunks_than_it_may_hold(
    streams: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rangereader, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(rangereader, "AHEAD_CHUNKS", 3)
    feed(streams.url, "flights", names(2000), 1000, durable=True)
    with receiving(streams.url, 0, 1990) as found:
        wait_until(
            lambda: {row["credit"] for row in consumers(streams.url, "flights")} == {0}, 20, "no credit"
        )
        assert 0 < number_of(streams, "flights", "delivered") <= 3 * (1 << 14) // 1000
        messages: list[bytes] = []
        while len((taken := found.take(30, 40_000)).sizes):
            assert len(taken.data) <= 40_000
            messages += split(taken)
        assert [offset_of(each) for each in messages] == list(range(1990))
    # Nothing was sent that no task wanted.
    assert number_of(streams, "flights", "delivered") == 1990


@pytest.mark.parametrize("way", ["chunks", "one by one", "first one by one", "first chunks", "in turns"])
def test_a_connection_that_is_lost_repeats_and_omits_nothing(
    returning_streams: ReturningBroker, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Also where the broker that comes back knows chunks and the one before didn't, or does no more."""
    if "one by one" in way:
        monkeypatch.setattr(rangereader, "put_filters", without_chunks)
    monkeypatch.setattr(rangereader, "AHEAD_ROWS", 500)
    monkeypatch.setattr(rangereader, "AHEAD_CHUNKS", 2)
    monkeypatch.setattr(rangereader, "CHUNK_BYTES", 1 << 14)
    feed(returning_streams.url, "flights", names(5000), durable=True)
    with receiving(returning_streams.url, 100, 4900) as found:
        seen = [*found.take(200, 1 << 20).offsets]
        for time_ in range(2):
            if way == "first chunks" or (way == "in turns" and time_ == 0):
                monkeypatch.setattr(rangereader, "put_filters", without_chunks)
            elif way in ("first one by one", "in turns"):
                monkeypatch.setattr(rangereader, "put_filters", put_filters)
            returning_streams.kill()
            returning_streams.start()
            wait_until(lambda: bool(consumers(returning_streams.url, "flights")), 20, "it to be back")
            seen += list(found.take(200, 1 << 20).offsets)
        while len((taken := found.take(1000, 1 << 20)).sizes):
            seen += list(taken.offsets)
        assert found.lost_count == 2
    assert seen == list(range(100, 4900))


def test_a_selector_leaves_holes_and_the_range_still_ends(streams: RunningBroker) -> None:
    feed(streams.url, "flights", (each for number in range(600) for each in names(1, number)), durable=True)
    # The last that matches is far from the end, and none may match at all.
    some = "JMSMessageID IN ('m-00000003', 'm-00000150', 'm-00000151')"
    assert rows(streams.url, 0, 600, selector=some) == [
        (names(1, number)[0], number) for number in (3, 150, 151)
    ]
    assert rows(streams.url, 4, 151, selector=some) == expected(150, 151)
    assert rows(streams.url, 200, 600, selector="JMSMessageID = 'none'") == []


def test_what_retention_removed_fails_the_task_or_is_passed_over(
    streams: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    sent = fill_segments(streams)
    first = number_of(streams, "short", "first_offset")
    with pytest.raises(DataLossError, match=rf"partition 3 \('short'\), offsets 5 to {first - 1} are gone"):
        rows(streams.url, 5, sent, "short", 3)
    with caplog.at_level(logging.WARNING, "pyspark_sluice"):
        found = rows(streams.url, 5, sent, "short", 3, failOnDataLoss="false")
    assert found == expected(first, sent)
    assert f"offsets 5 to {first - 1} are gone from the stream and are passed over" in caplog.text
    # A range of which nothing is left.
    with pytest.raises(DataLossError, match="offsets 5 to 9 are gone"):
        rows(streams.url, 5, 10, "short")
    assert rows(streams.url, 5, 10, "short", failOnDataLoss="false") == []
    # Behind a selector a hole is looked into at the end.
    with pytest.raises(DataLossError, match="offsets 5 to"):
        rows(streams.url, 5, sent, "short", selector="JMSMessageID LIKE 'm-%'")
    assert rows(streams.url, first, sent, "short", selector="JMSMessageID = 'none'") == []
    # One that was made anew, or is new, begins where it begins.
    anew = StreamRange("short", Range(0, 0, sent, True))
    [*batches] = read_range(anew, source(streams.url, "short"), SCHEMA)
    assert sum(batch.num_rows for batch in batches) == sent - first


def test_offsets_that_were_announced_are_waited_for(
    streams: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rangereader, "SILENCE_S", 0.2)
    feed(streams.url, "flights", names(10), durable=True)
    with pytest.raises(DataLossError, match="offsets 10 to 11 were announced by the broker, and didn't come"):
        rows(streams.url, 5, 12, reconnectTimeout="500 ms")
    with receiving(streams.url, 5, 12) as found:
        wait_until(lambda: "were announced and aren't there" in caplog.text, 20, "a warning")
        feed(streams.url, "flights", names(5, 10), durable=True)
        seen: list[int] = []
        while len((taken := found.take(100, 1 << 20)).sizes):
            seen += list(taken.offsets)
    assert seen == list(range(5, 12))


def test_offsets_that_the_stream_has_no_more_are_passed_over(
    streams: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rangereader, "SILENCE_S", 0.2)
    feed(streams.url, "flights", names(10), durable=True)
    # It ends before the range, so it was made anew: they never come.
    assert rows(streams.url, 100, 200, failOnDataLoss="false", reconnectTimeout="30s") == []
    assert "offsets 100 to 199 are gone from the stream and are passed over" in caplog.text
    # It ends within the range: they may come, for a while.
    assert rows(streams.url, 5, 12, failOnDataLoss="false", reconnectTimeout="500 ms") == expected(5, 10)
    assert "offsets 10 to 11 are gone from the stream" in caplog.text


def test_a_queue_is_no_stream(streams: RunningBroker) -> None:
    feed(streams.url, "orders", names(5))
    with pytest.raises(RefusedError, match="'orders' is no stream"):
        rows(streams.url, 0, 5, "orders")
    assert number_of(streams, "orders", "ready_msgs") == 5


def test_the_first_offset_of_a_time(streams: RunningBroker) -> None:
    feed(streams.url, "flights", names(20), durable=True)
    later = int(time.time() * 1000) + 1
    wait_until(lambda: time.time() * 1000 > later + 20, 5, "a later time")
    broker = StreamOffsets(source(streams.url, "flights"))
    try:
        assert broker.offset_at("flights", later) is None
        feed(streams.url, "flights", names(5, 20), durable=True)
        assert broker.offset_at("flights", later) == 20
        assert broker.offset_at("flights", 0) == 0
        [found, none] = broker.attributes(
            [("org.sluice.queue", "flights"), ("org.sluice.queue", "x")], None
        ) or [None, None]
        assert found is not None
        assert (found["queue_type"], found["next_offset"], none) == ("stream", 25, None)
        with pytest.raises(AmqpError, match="'orders' is no stream"):
            broker.offset_at("orders", 0)
    finally:
        broker.close()


def test_a_broker_is_asked_once_where_that_is_enough() -> None:
    broker = StreamOffsets(source("amqp://127.0.0.1:1", "flights"), once=True)
    begun = time.monotonic()
    with pytest.raises(AmqpError):
        broker.attributes([("org.sluice.queue", "flights")], None)
    assert time.monotonic() - begun < 5
    broker.close()
