"""The links of a source against a real broker: credit only during a filling, order, limits, settlement."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from broker.client.link import Connection
from broker.client.request import Management
from pyspark_sluice import batch
from pyspark_sluice.decode import Decoder
from pyspark_sluice.depth import Depth
from pyspark_sluice.errors import LoginError, OptionError, RefusedError, UnreachableError
from pyspark_sluice.options import Options
from pyspark_sluice.receiver import LONGEST, UNKNOWN, Filling, Receiver, Sizes
from tests.spark.conftest import PASSWORD, PASSWORD_VARIABLE, ReturningBroker, StartBroker
from tests.spark.feeding import await_on_disk, consumers, feed, id_of, names, source
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.secured import Secured
from tests.wire.seeing import await_number, number_of

PATIENCE_S = 20.0


@contextmanager
def receiver(options: Options, *, copies: bool = False) -> Iterator[Receiver]:
    found = Receiver(options, copies=copies)
    found.start()
    try:
        yield found
    finally:
        found.close()


def take(found: Receiver, rows: int, size: int | None = None, wait_s: float = 0.0) -> list[bytes]:
    taken = found.take(rows, size, wait_s=wait_s, patience_s=PATIENCE_S)
    assert taken is not None
    return taken


def test_no_link_has_credit_between_two_fillings(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(50))
    with receiver(source(broker.url, "q")) as found:
        assert len(take(found, 20)) == 20
        assert [row["credit"] for row in consumers(broker.url, "q")] == [0]
        # More than there is: what isn't used up is given back.
        assert len(take(found, 100)) == 30
        assert {row["credit"] for row in consumers(broker.url, "q")} == {0}
        assert take(found, 100, wait_s=0.05) == []
        assert {row["credit"] for row in consumers(broker.url, "q")} == {0}
        feed(broker.url, "q", names(5))
        assert number_of(broker, "q", "ready_msgs") == 5


def test_a_batch_beyond_one_links_window_takes_more_links_and_keeps_the_order(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(7000))
    with receiver(source(broker.url, "q")) as found:
        for first in (0, 3500):
            taken = take(found, 3500)
            assert [id_of(each) for each in taken] == names(3500, first)
            assert len(consumers(broker.url, "q")) == 4
            found.settle(3500)
        await_number(broker, "q", "depth_msgs", 0)


def test_a_named_subscription_keeps_what_is_published_between_two_runs(broker: RunningBroker) -> None:
    options = source(broker.url, "news", nodeKind="topic", subscription="nightly")
    with receiver(options) as found:
        assert take(found, 10) == []
        feed(broker.url, "news", names(5))
        assert [id_of(each) for each in take(found, 10)] == names(5)
        found.settle(5)
    feed(broker.url, "news", names(20, 5))
    with receiver(options) as found:
        assert [id_of(each) for each in take(found, 100)] == names(20, 5)
        found.settle(20)
        assert take(found, 100, wait_s=0.05) == []


def test_a_topic_has_one_link_alone_and_each_message_comes_once(broker: RunningBroker) -> None:
    options = source(broker.url, "news", nodeKind="topic")
    with receiver(options) as found:
        assert take(found, 10) == []
        for first in (0, 30, 60):
            feed(broker.url, "news", names(30, first))
            # More is asked for than there is: a queue would be tried over a second link.
            taken = take(found, 100)
            assert [id_of(each) for each in taken] == names(30, first)
            found.settle(30)
        # What a topic lacks, a depth, isn't asked for: the answers would be traffic of its own.
        assert found.depth(PATIENCE_S) is None
        with Management(broker.url) as management:
            wanted = {"attributeNames": ["container", "role"]}
            body = management.call("QUERY", "org.sluice.link", body=wanted).body
        assert isinstance(body, dict)
        assert [row for row in body["results"] if row[0] == found.container] == [
            [found.container, "consumer"]
        ]


KEEPING = "policies:\n  - {match: kept, non_destructive: true}\n  - {match: flights, kind: stream}\n"


def test_a_queue_that_keeps_its_messages_has_one_link_alone(start_broker: StartBroker) -> None:
    """Over a second link all of them would come once more."""
    broker = start_broker(policies=KEEPING)
    feed(broker.url, "kept", names(100))
    with receiver(source(broker.url, "kept")) as found:
        assert [id_of(each) for each in take(found, 10_000)] == names(100)
        found.settle(100)
        feed(broker.url, "kept", names(5, 100))
        assert [id_of(each) for each in take(found, 10_000)] == names(5, 100)
        assert len(consumers(broker.url, "kept")) == 1
    assert number_of(broker, "kept", "depth_msgs") == 105


def test_a_stream_is_not_read_as_a_queue(start_broker: StartBroker) -> None:
    broker = start_broker(policies=KEEPING)
    feed(broker.url, "flights", names(3))
    with receiver(source(broker.url, "flights", sourceType="queue")) as found:
        wait_until(lambda: found.failure is not None, 20, "the broker to say what it is")
        with pytest.raises(OptionError, match="'flights' is a stream, and read as a queue"):
            take(found, 10)


def test_the_option_links_bounds_them(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(5000))
    with receiver(source(broker.url, "q", links="2")) as found:
        assert len(take(found, 5000)) == 2000
        assert len(consumers(broker.url, "q")) == 2


def test_bytes_bound_a_filling_by_the_mean_size(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(2000), 1000)
    with receiver(source(broker.url, "q")) as found:
        # The first hundred, of which nobody knows how long they are, and what then fits.
        assert 190 <= len(take(found, 2000, 200_000)) <= 200
        assert 95 <= len(take(found, 2000, 100_000)) <= 100


def test_large_messages_behind_small_ones_exceed_the_bytes_by_one_step(broker: RunningBroker) -> None:
    """The mean of what came so far says nothing of what comes."""
    small, large = 100, 30_000
    feed(broker.url, "q", names(6000), small)
    feed(broker.url, "q", names(400, 6000), large)
    feed(broker.url, "q", names(6000, 6400), small)
    limit = 400_000
    with receiver(source(broker.url, "q")) as found:
        batches = []
        while taken := take(found, 10_000, limit):
            found.settle(len(taken))
            batches.append(taken)
    assert [id_of(each) for taken in batches for each in taken] == names(12_400)
    sizes = [sum(map(len, taken)) for taken in batches]
    assert max(sizes) < limit + LONGEST * large
    # One is taken by surprise; then it is known how large they are, and that they are no more.
    assert len([size for size in sizes if size > 1.1 * limit]) <= 2
    assert len([size for size in sizes if size < 0.8 * limit]) <= 2


def test_credit_by_bytes_goes_in_steps() -> None:
    filling, sizes, steps = Filling(10_000, 1_000_000, 0.0), Sizes(), []
    while step := filling.missing(sizes.typical()):
        steps.append(step)
        for _ in range(step):
            filling.count(300)
            sizes.count(300)
    assert steps[:5] == [UNKNOWN, 200, 400, LONGEST, LONGEST]
    assert max(steps) == LONGEST
    assert sum(steps) == 1_000_000 // 300


def test_one_large_step_is_remembered_and_a_small_one_is_not_trusted() -> None:
    sizes = Sizes()
    assert sizes.typical() == 0

    def step(count: int, size: int) -> float:
        for _ in range(count):
            sizes.count(size)
        return sizes.typical()

    assert step(100_000, 100) == 100
    assert step(100, 30_000) == 30_000
    # What is asked between two fillings ends no step.
    assert sizes.typical() == 30_000
    assert 1000 < step(100, 100) < 30_000
    assert step(1000, 100) < 3000
    assert step(10_000, 100) < 1000


def test_links_whose_window_a_step_uses_up_exactly_end_no_filling(broker: RunningBroker) -> None:
    """100 + 200 + 400 + 300, and the next 500 + 500: the windows of two links."""
    feed(broker.url, "q", names(4500))
    with receiver(source(broker.url, "q")) as found:
        assert len(take(found, 4500, 1 << 30)) == 4500


EXCLUSIVE = "policies:\n  - {match: alone, consumers: exclusive}\n"


def test_a_queue_that_lets_us_have_one_link_alone_is_read_over_it(start_broker: StartBroker) -> None:
    broker = start_broker(policies=EXCLUSIVE)
    feed(broker.url, "alone", names(2500))
    with receiver(source(broker.url, "alone")) as found:
        for first, count in ((0, 1000), (1000, 1000), (2000, 500)):
            taken = take(found, 10_000)
            assert [id_of(each) for each in taken] == names(count, first)
            found.settle(count)
        assert take(found, 10_000, wait_s=0.05) == []
        assert (found.failure, found.lost_count) == (None, 0)
        # The first link is another matter: without it nothing is read, and it is tried again for a while.
        options = source(broker.url, "alone", reconnectTimeout="500ms")
        with receiver(options) as second, pytest.raises(UnreachableError, match=r"gave up .*exclusive"):
            take(second, 1)


def test_an_exclusive_queue_that_another_has_is_waited_for(start_broker: StartBroker) -> None:
    """The other may be this query's last connection, of which the broker doesn't know that it is gone."""
    broker = start_broker(policies=EXCLUSIVE)
    feed(broker.url, "alone", names(10))
    options = source(broker.url, "alone", reconnectTimeout="60s")
    with receiver(options) as first:
        assert len(take(first, 10)) == 10
        with receiver(options) as second:
            assert second.take(10, None, wait_s=0.0, patience_s=0.1) is None
            wait_until(lambda: second.lost_count > 0, 20, "the link to be refused")
            first.close()
            assert [id_of(each) for each in take(second, 10)] == names(10)


def test_a_look_ends_where_nothing_is_left_and_not_where_bytes_end(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(300), 1000)
    with receiver(source(broker.url, "q"), copies=True) as found:
        looked: list[bytes] = []
        while not found.dry:
            taken = take(found, 5000, 100_000)
            assert sum(map(len, taken)) < 210_000
            looked += taken
        assert [id_of(each) for each in looked] == names(300)


def test_a_table_is_read_by_bytes_too(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BYTES", 200_000)
    feed(broker.url, "q", names(1000), 1000)
    reader = batch.BrowseReader(source(broker.url, "q"), StructType().add("message_id", StringType()))
    (part,) = reader.partitions()
    batches = list(reader.read(part))
    assert [name for each in batches for name in each.column("message_id").to_pylist()] == names(1000)
    assert len(batches) >= 5


def test_a_message_larger_than_all_bytes_comes_alone(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(3), 300_000)
    with receiver(source(broker.url, "q")) as found:
        assert [len(take(found, 100, 1000)) for _ in range(1)] == [3]
        assert take(found, 100) == []


def test_what_is_not_settled_goes_back_undelivered(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(100))
    with receiver(source(broker.url, "q")) as found:
        take(found, 60)
        found.settle(25)
        await_number(broker, "q", "depth_msgs", 75)
    await_number(broker, "q", "ready_msgs", 75)
    with Connection(broker.url) as connection:
        link = connection.receiver("q", limit=75)
        back: list[bytes] = []
        while len(back) < 75:
            back += link.take(75, 10)
    wanted = StructType().add("message_id", StringType()).add("delivery_count", LongType())
    rows = Decoder(wanted).batch(b"".join(back), [len(each) for each in back]).to_pylist()
    assert rows == [{"message_id": name, "delivery_count": 0} for name in names(75, 25)]


def test_an_empty_queue_is_waited_for(broker: RunningBroker) -> None:
    with receiver(source(broker.url, "q", nodeKind="queue")) as found:
        assert take(found, 10) == []
        assert found.take(10, None, wait_s=30.0, patience_s=0.05) is None
        wait_until(
            lambda: [row["credit"] for row in consumers(broker.url, "q")] == [1], 10, "one credit to stay"
        )
        feed(broker.url, "q", names(4))
        first = take(found, 10)
        assert first
        while len(first) < 4:
            first += take(found, 10, wait_s=1.0)
        assert [id_of(each) for each in first] == names(4)


def test_browsing_takes_nothing_and_ends(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(2500))
    with receiver(source(broker.url, "q"), copies=True) as found:
        assert len(take(found, 2000)) == 2000
        assert len(take(found, 2000)) == 500
        assert take(found, 2000) == []
    assert number_of(broker, "q", "ready_msgs") == 2500
    assert number_of(broker, "q", "depth_msgs") == 2500


def test_a_selector_takes_only_what_matches(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(50))
    with receiver(source(broker.url, "q", selector="amqp.message_id LIKE 'm-0000004%'")) as found:
        assert [id_of(each) for each in take(found, 100)] == names(10, 40)
        found.settle(10)
    await_number(broker, "q", "depth_msgs", 40)
    with receiver(source(broker.url, "q", selector="no selector (")) as found, pytest.raises(RefusedError):
        take(found, 100)


def test_depth_is_the_brokers_and_unknown_where_it_says_nothing(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(30))
    with receiver(source(broker.url, "q")) as found:
        take(found, 10)
        assert found.depth(PATIENCE_S) == Depth(30, 20)
        found.settle(10)
        await_number(broker, "q", "depth_msgs", 20)
        assert found.depth(PATIENCE_S) == Depth(20, 20)
    with receiver(source(broker.url, "nothing", nodeKind="topic")) as found:
        take(found, 1)
        assert found.depth(PATIENCE_S) is None


def test_after_the_broker_came_back_all_that_was_not_settled_comes_again(
    returning_broker: ReturningBroker,
) -> None:
    feed(returning_broker.url, "q", names(3000), durable=True)
    with receiver(source(returning_broker.url, "q")) as found:
        assert len(take(found, 1500)) == 1500
        found.settle(1000)
        assert returning_broker.running is not None
        await_number(returning_broker.running, "q", "depth_msgs", 2000)
        # What is settled counts at once, and outlives the broker when it is on disk.
        await_on_disk(returning_broker.url)
        returning_broker.kill()
        assert found.take(3000, None, wait_s=0.0, patience_s=0.2) is None
        returning_broker.start()
        # Settled in vain: they are in the queue again.
        found.settle(500)
        again = [id_of(each) for each in take(found, 3000)]
        assert again == names(2000, 1000)
        found.settle(2000)
        await_number(returning_broker.running, "q", "depth_msgs", 0)


def test_a_look_that_loses_its_connection_fails(returning_broker: ReturningBroker) -> None:
    feed(returning_broker.url, "q", names(10), durable=True)
    with receiver(source(returning_broker.url, "q"), copies=True) as found:
        assert len(take(found, 5)) == 5
        returning_broker.stop()
        with pytest.raises(UnreachableError, match="after 5 messages"):
            take(found, 10)


def test_a_wrong_password_is_final_and_shown_nowhere(
    start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("secured")
    secured = Secured(start_broker, folder, "rules: [{allow: all}]\n", {"anna": ""})
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    options = source(secured.broker.url, "q", user="anna", passwordEnv=PASSWORD_VARIABLE)
    with receiver(options) as found:
        with pytest.raises(LoginError) as refused:
            take(found, 1)
        with pytest.raises(LoginError):
            take(found, 1)
    assert PASSWORD not in str(refused.value) + repr(options) + secured.broker.log


LEAVING = """
import sys
from pyspark_sluice.options import parse
from pyspark_sluice.stream import QueueReader
from pyspark_sluice.decode import SCHEMA
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark_sluice import stream
# A broker that is slow to answer is none that can't be reached.
stream.PATIENCE_S = 20.0
reader = QueueReader(parse({"url": sys.argv[1], "address": "q"}, "source"), SCHEMA)
try:
    print(reader.latestOffset(reader.initialOffset(), ReadMaxRows(30)), flush=True)
    sys.stdin.read()
finally:
    reader.stop()
"""


@pytest.mark.parametrize("how", ["sigterm", "hung up"])
def test_a_reader_that_is_told_to_go_closes_its_links(broker: RunningBroker, how: str) -> None:
    """As Spark ends the process it keeps for a query: it hangs up, and sends a signal right behind."""
    feed(broker.url, "q", names(50))
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVING, broker.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline().strip() == "{'queue': 30}"
    assert number_of(broker, "q", "ready_msgs") == 20
    if how == "sigterm":
        process.send_signal(signal.SIGTERM)
    process.stdin.close()
    status = process.wait(30)
    process.stdout.close()
    assert status == (143 if how == "sigterm" else 0)
    await_number(broker, "q", "ready_msgs", 50)
    broker.wait_for_log("container 'spark-source")
    wait_until(lambda: consumers(broker.url, "q") == [], 10, "the links to be gone")
    # Its links go first, the connection says so behind them.
    wait_until(
        lambda: any("spark-source" in line and "by the client" in line for line in broker.lines),
        20,
        "the log to say who closed it",
    )


def test_a_deleted_queue_ends_it_with_the_brokers_reason(broker: RunningBroker) -> None:
    feed(broker.url, "q", names(5))
    with receiver(source(broker.url, "q")) as found:
        take(found, 5)
        with Management(broker.url) as management:
            management.call("DELETE", "org.sluice.queue", "q")
        wait_until(lambda: found.failure is not None, 10, "the link to be ended")
        with pytest.raises(RefusedError, match="amqp:resource-deleted"):
            take(found, 5)
