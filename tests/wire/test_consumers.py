"""Consumers on the wire (FLOW §5): windows that adapt, slow ones, one budget a connection, fair shares."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.request import urlopen

import pytest

from broker.cli.terminal.ask import rows
from broker.client.errors import RefusedError
from broker.client.link import Connection, Receiver
from broker.client.request import Management
from broker.codec import sections
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.seeing import number_of, queue_of, update

pytestmark = [pytest.mark.wire, pytest.mark.flow]

BODY = sections.text_body("hello")
SEEN = ("role", "node", "link", "credit", "unsettled", "window_limit", "settle_rate", "round_trip_s", "slow")


def produce(broker: RunningBroker, address: str, count: int) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        for _ in range(count):
            sender.send(BODY, 20)
        sender.flush(20)


def consumers(broker: RunningBroker, address: str) -> list[Mapping[str, object]]:
    """The consumer links at a node, in the order they were attached."""
    with Management(broker.url) as management:
        found = rows(management, "link", [*SEEN, "identity"])
    mine = [row for row in found if (row["role"], row["node"]) == ("consumer", address)]
    return sorted(mine, key=lambda row: [int(part) for part in str(row["identity"])[1:].split(".")])


def unsettled(broker: RunningBroker, address: str) -> list[int]:
    return [int(str(row["unsettled"])) for row in consumers(broker, address)]


def await_unsettled(broker: RunningBroker, address: str, wanted: list[int]) -> None:
    wait_until(
        lambda: unsettled(broker, address) == wanted,
        10,
        f"{wanted} unsettled at {address}, not {unsettled(broker, address)}",
    )


def settle(connection: Connection, receiver: Receiver, count: int) -> None:
    """Accept so many and have the broker hear of it."""
    taken = 0
    while taken < count:
        got = len(receiver.take(count - taken, 10))
        assert got, f"{taken} of {count} came"
        taken += got
    connection.wait_until(lambda: False, 0.02)


def stuck_until_told(connection: Connection, receiver: Receiver) -> None:
    """Read, and settle nothing, until the link's error is there; it is raised."""
    connection.wait_until(lambda: not receiver.is_attached(), 15)


POLICIES = """policies:
  - match: adaptive
    dispatch: adaptive
    consumer_flow_min: 5
    consumer_flow_limit: 2000
  - match: told
    slow_consumer: {rate: 5, for: 3s, action: notify}
  - match: thrown
    slow_consumer: 5/s for 3s detach
"""


def test_a_full_window_reopens_at_its_share(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: full, consumer_flow_limit: 10, consumer_flow_threshold: 20%}\n"
    )
    produce(broker, "full", 30)
    with Connection(broker.url) as connection:
        receiver = connection.receiver("full", credit=100)
        await_unsettled(broker, "full", [10])
        settle(connection, receiver, 7)
        await_unsettled(broker, "full", [3])
        assert queue_of(broker, "full")["delivered"] == 10
        settle(connection, receiver, 1)
        await_unsettled(broker, "full", [10])


# --- adaptive


def test_an_adaptive_window_begins_small_and_grows_with_who_settles(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    produce(broker, "adaptive", 5000)
    with Connection(broker.url) as connection:
        receiver = connection.receiver("adaptive", credit=3000)
        await_unsettled(broker, "adaptive", [5])
        settle(connection, receiver, 4000)
        seen = consumers(broker, "adaptive")[0]
        assert 5 < int(str(seen["window_limit"])) <= 2000
        assert float(str(seen["round_trip_s"])) > 0

        def is_rated() -> bool:
            settle(connection, receiver, 5)
            return float(str(consumers(broker, "adaptive")[0]["settle_rate"])) > 0

        wait_until(is_rated, 15, "a rate to be seen")


def test_dispatch_changes_at_runtime_both_ways(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    produce(broker, "adaptive", 100)
    with Connection(broker.url) as connection:
        connection.receiver("adaptive", credit=3000)
        await_unsettled(broker, "adaptive", [5])
        update(broker, "adaptive", dispatch="fair", consumer_flow_limit=20)
        await_unsettled(broker, "adaptive", [20])
        update(broker, "adaptive", dispatch="adaptive", consumer_flow_limit=2000)
        assert consumers(broker, "adaptive")[0]["window_limit"] == 5


# --- slow consumers


def test_a_slow_consumer_is_told_of_until_it_keeps_up(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    produce(broker, "told", 100)
    with Connection(broker.url) as connection:
        receiver = connection.receiver("told", credit=10)
        wait_until(lambda: consumers(broker, "told")[0]["slow"] is True, 15, "it to be slow")
        assert number_of(broker, "told", "slow_consumers") == 1
        url = f"http://127.0.0.1:{broker.http_port}/metrics"
        metrics = urlopen(url, timeout=START_SECONDS).read().decode()
        assert 'sluice_queue_slow_consumers{queue="told"} 1' in metrics
        assert "sluice_slow_consumers 1" in metrics
        settle(connection, receiver, 100)
        wait_until(lambda: consumers(broker, "told")[0]["slow"] is False, 10, "it to be slow no more")
        assert number_of(broker, "told", "slow_consumers") == 0


def test_an_idle_consumer_is_not_slow(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with Connection(broker.url) as idle, Connection(broker.url) as busy:
        idle.receiver("thrown", credit=10)
        busy.receiver("told", credit=10)
        produce(broker, "told", 5)
        # The other one shows that so much time has passed.
        wait_until(lambda: consumers(broker, "told")[0]["slow"] is True, 15, "the other to be slow")
        assert consumers(broker, "thrown")[0]["slow"] is False


def test_a_slow_consumer_is_detached_and_others_get_its_messages(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with Connection(broker.url) as slow, Connection(broker.url) as quick:
        # They are there first: it has all of them at once, and may be told before it can ask.
        produce(broker, "thrown", 10)
        with pytest.raises(RefusedError, match=r"amqp:resource-limit-exceeded.*slow_consumer.*10 unsettled"):
            stuck_until_told(slow, slow.receiver("thrown", credit=10))
        assert consumers(broker, "thrown") == []
        receiver = quick.receiver("thrown", credit=100)
        settle(quick, receiver, 10)
        assert queue_of(broker, "thrown")["depth_msgs"] == 0


# --- one window a connection

LIMITED = "flow: {connection_flow_limit: 30, connection_flow_limit_enabled: true}\n"


def test_a_connections_links_share_its_window_by_turns(start_broker: StartBroker) -> None:
    """A link with a huge backlog takes the whole window; as it settles, the other gets its half."""
    broker = start_broker(LIMITED)
    produce(broker, "huge", 500)
    produce(broker, "small", 20)
    with Connection(broker.url) as connection:
        huge = connection.receiver("huge", credit=1000)
        await_unsettled(broker, "huge", [30])
        small = connection.receiver("small", credit=1000)
        await_unsettled(broker, "small", [0])
        settle(connection, huge, 15)
        await_unsettled(broker, "small", [15])
        await_unsettled(broker, "huge", [15])
        settle(connection, small, 15)
        await_unsettled(broker, "small", [5])
        await_unsettled(broker, "huge", [25])
        with Connection(broker.url) as other:
            again = other.receiver("huge", credit=5)
            settle(other, again, 1)


def test_every_link_of_a_connection_is_served_though_they_share(start_broker: StartBroker) -> None:
    broker = start_broker(LIMITED)
    names = [f"part{number}" for number in range(6)]
    for name in names:
        produce(broker, name, 200)
    with Connection(broker.url) as connection:
        receivers = [connection.receiver(name, credit=500) for name in names]
        left = dict.fromkeys(names, 200)
        for _ in range(2000):
            if not any(left.values()):
                break
            connection.wait_until(lambda: any(each.has_message() for each in receivers), 10)
            for name, receiver in zip(names, receivers, strict=True):
                if receiver.has_message():
                    left[name] -= len(receiver.take(3, 10))
        assert not any(left.values()), left


def test_the_window_comes_back_from_a_link_that_goes(start_broker: StartBroker) -> None:
    broker = start_broker(LIMITED)
    produce(broker, "huge", 100)
    produce(broker, "small", 20)
    with Connection(broker.url) as connection:
        first = connection.receiver("huge", credit=1000)
        await_unsettled(broker, "huge", [30])
        connection.receiver("small", credit=1000)
        first.close()
        connection.wait_until(lambda: False, 0.02)
        await_unsettled(broker, "small", [20])


# --- fair


def test_a_small_backlog_differs_by_at_most_one(start_broker: StartBroker) -> None:
    """Open MQ's case: few messages, prefetches far larger; nobody is left without."""
    broker = start_broker()
    with Connection(broker.url) as connection:
        for _ in range(4):
            connection.receiver("few", credit=1000)
        wait_until(lambda: len(consumers(broker, "few")) == 4, 10, "four consumers")
        produce(broker, "few", 10)
        wait_until(lambda: sum(unsettled(broker, "few")) == 10, 10, "all to be sent")
        counts = unsettled(broker, "few")
        assert max(counts) - min(counts) <= 1, counts
        # One that joins late has nothing that was sent already, and all that comes until it is level.
        late = connection.receiver("few", credit=1000)
        produce(broker, "few", 2)
        await_unsettled(broker, "few", [*counts, 2])
        produce(broker, "few", 8)
        wait_until(lambda: sum(unsettled(broker, "few")) == 20, 10, "all to be sent")
        assert unsettled(broker, "few") == [4, 4, 4, 4, 4]
        # Who settles falls behind the others, and is served first.
        settle(connection, late, 3)
        produce(broker, "few", 3)
        await_unsettled(broker, "few", [4, 4, 4, 4, 4])


def test_a_burst_is_halved_by_two_with_credit_for_all_of_it(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Connection(broker.url) as connection:
        for _ in range(2):
            connection.receiver("burst", credit=100)
        wait_until(lambda: len(consumers(broker, "burst")) == 2, 10, "two consumers")
        produce(broker, "burst", 100)
        await_unsettled(broker, "burst", [50, 50])


def test_whose_credit_is_used_up_leaves_the_rest_to_the_others(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Connection(broker.url) as connection:
        for credit in (2, 1000, 1000):
            connection.receiver("few", credit=credit)
        wait_until(lambda: len(consumers(broker, "few")) == 3, 10, "three consumers")
        produce(broker, "few", 13)
        wait_until(lambda: sum(unsettled(broker, "few")) == 13, 10, "all to be sent")
        first, *others = unsettled(broker, "few")
        assert (first, sorted(others)) == (2, [5, 6])


# --- limits, wherever they are set


def test_the_limit_of_nodes_that_clients_make_by_kind(start_broker: StartBroker) -> None:
    broker = start_broker(
        "flow: {consumer_flow_limit: 9, auto_queue_consumer_flow_limit: 7,"
        " auto_topic_consumer_flow_limit: 3}\n",
        "policies:\n  - {match: own, consumer_flow_limit: 5}\n  - {match: 'topic.*', kind: topic}\n",
    )
    with Management(broker.url) as management:
        management.call("CREATE", "org.sluice.queue", "made", {})
    wanted = {"made": 9, "found": 7, "own": 5, "topic.a": 3}
    with Connection(broker.url) as connection:
        for address in wanted:
            connection.receiver(address, credit=100)
        produce(broker, "topic.a", 20)
        for address in ("made", "found", "own"):
            produce(broker, address, 20)
            await_unsettled(broker, address, [wanted[address]])
        assert queue_of(broker, "topic.a", "topic")["consumer_flow_limit"] == 3
        with Management(broker.url) as management:
            found = rows(management, "link", ["role", "window_limit", "unsettled"])
        assert {(row["window_limit"], row["unsettled"]) for row in found if row["role"] == "consumer"} >= {
            (3, 3)
        }
