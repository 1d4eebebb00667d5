"""Priorities on the wire, with Proton's own clients: order, room kept for alarms, consumers' priorities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from proton import Link, Message, Timeout, symbol
from proton.reactor import Copy, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, LinkDetached

from broker.client.link import Connection
from broker.errors import OperatorError
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import await_number, number_of, queue_of, update
from tests.wire.terminus import flush

pytestmark = pytest.mark.wire

POLICIES = """\
policies:
  - match: "alarms"
    durable: true
    priority: strict
    max_count: 125
    flow_stop_count: 100
    flow_resume_count: 100
    priority_reserve: 10%
  - match: "deep"
    durable: true
    priority: strict
    overflow: page
    memory_limit: 4MB
  - match: "last"
    priority: strict
    overflow: ring
    max_count: 3
  - match: "news"
    kind: topic
    priority: strict
"""


class Stating(LinkOption):
    """An attach with these link properties."""

    def __init__(self, **properties: object) -> None:
        self.properties: Any = {symbol(name.replace("__", ":")): value for name, value in properties.items()}

    def apply(self, link: Link) -> None:
        link.properties = self.properties


@contextmanager
def connected(broker: RunningBroker) -> Iterator[BlockingConnection]:
    made = BlockingConnection(broker.url, timeout=20)
    try:
        yield made
    finally:
        made.close()


def put(sender: BlockingSender, *levels: int, durable: bool = True, first: int = 0) -> None:
    for number, level in enumerate(levels, first):
        made = Message(body=f"{level}/{number}", durable=durable)
        made.priority = level
        sender.send(made)


def taken(receiver: BlockingReceiver, count: int, *, accepts: bool = True) -> list[str]:
    found = []
    for _ in range(count):
        found.append(str(receiver.receive(timeout=20).body))
        if accepts:
            receiver.accept()
    return found


def by_level(*levels: int) -> list[str]:
    numbered = [(-level, number) for number, level in enumerate(levels)]
    return [f"{-level}/{number}" for level, number in sorted(numbered)]


LEVELS = (4, 0, 9, 4, 7, 9, 0, 5)


def test_the_highest_priority_is_delivered_first(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        put(connection.create_sender("alarms"), *LEVELS)
        browser = connection.create_receiver("alarms", credit=20, name="looks", options=Copy())
        assert taken(browser, len(LEVELS), accepts=False) == by_level(*LEVELS)
        receiver = connection.create_receiver("alarms", credit=1)
        assert taken(receiver, 1) == ["9/2"]
        # One that goes out and comes back stands in its old place.
        again = receiver.receive(timeout=20)
        receiver.release(delivered=False)
        assert again.body == "9/5"
        assert receiver.receive(timeout=20).body == "9/5"


# Checkpoints are made early, so that messages are in pages.
CONFIG = "store: {journal_file_size: 1MB}\n"


def killed_and_started(broker: RunningBroker, start_broker: StartBroker) -> RunningBroker:
    broker.process.kill()
    broker.process.wait(20)
    return start_broker(CONFIG, POLICIES, ["--data", str(broker.config_file.parent / "data")])


def test_levels_survive_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        put(connection.create_sender("alarms"), *LEVELS)
    again = killed_and_started(broker, start_broker)
    with connected(again) as connection:
        receiver = connection.create_receiver("alarms", credit=1)
        assert taken(receiver, len(LEVELS)) == by_level(*LEVELS)
    await_number(again, "alarms", "depth_msgs", 0)


def bulk(connection: BlockingConnection, address: str) -> int:
    """Send as much as there is credit for; how much that was."""
    sender = connection.create_sender(address)
    sent = 0
    while True:
        try:
            connection.wait(lambda: sender.link.credit > 0, timeout=1)
        except Timeout:
            # A broker that stood still for so long has given nothing: it answers first.
            flush(connection)
            if not sender.link.credit:
                return sent
        made = Message(body=f"4/{sent}", durable=True)
        sender.send(made)
        sent += 1


def test_a_queue_full_of_bulk_takes_the_alarm(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as crowd, connected(broker) as guard:
        assert bulk(crowd, "alarms") == 90
        sender = guard.create_sender("alarms", options=Stating(sluice__priority=9))
        put(sender, 9, 8)
        assert number_of(broker, "alarms", "depth_msgs") == 92
        with pytest.raises(Exception, match="timed out"):
            # It says that it sends alarms: bulk of its waits for the room of bulk.
            sender.send(Message(body="bulk"), timeout=1)
        assert number_of(broker, "alarms", "depth_msgs") == 92
        receiver = guard.create_receiver("alarms", credit=1)
        assert taken(receiver, 3) == ["9/0", "8/1", "4/0"]
    await_number(broker, "alarms", "promised_msgs", 0)


@pytest.mark.parametrize("value", [10, -1, "high"])
def test_a_priority_that_is_none_is_refused(start_broker: StartBroker, value: object) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection, pytest.raises(LinkDetached, match="sluice:priority"):
        connection.create_sender("alarms", options=Stating(sluice__priority=value))


@pytest.mark.parametrize("name", ["priority", "rabbitmq__priority", "sluice__priority"])
def test_consumers_of_the_highest_priority_come_first(start_broker: StartBroker, name: str) -> None:
    broker = start_broker()
    with connected(broker) as connection:
        sender = connection.create_sender("work")
        low = connection.create_receiver("work", credit=20, name="low")
        lower = connection.create_receiver("work", credit=20, name="lower", options=Stating(**{name: -5}))
        high = connection.create_receiver("work", credit=0, name="high", options=Stating(**{name: 7}))
        high.link.flow(3)
        # On one connection the broker reads of the credit before it reads the messages.
        put(sender, *[4] * 5, durable=False)
        assert taken(high, 3, accepts=False) == ["4/0", "4/1", "4/2"]
        assert taken(low, 2) == ["4/3", "4/4"]
        assert lower.fetcher is not None
        assert not lower.fetcher.has_message


def test_a_ring_keeps_the_highest(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        put(connection.create_sender("last"), 4, 7, 9, 5, 5, 0, durable=False)
        receiver = connection.create_receiver("last", credit=1)
        # 5/3 made room for nobody, for 5/4 came later and is of its level.
        assert taken(receiver, 3) == ["9/2", "7/1", "5/4"]
    assert number_of(broker, "last", "dropped") == 3


def test_a_topics_subscription_has_the_topics_priority(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        receiver = connection.create_receiver("news", credit=0)
        put(connection.create_sender("news"), *LEVELS, durable=False)
        receiver.link.flow(len(LEVELS))
        assert taken(receiver, len(LEVELS)) == by_level(*LEVELS)


def test_the_order_changes_while_messages_wait(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        put(connection.create_sender("alarms"), *LEVELS)
        # Credit of 1 each time a message is waited for: none is on its way when the order changes.
        receiver = connection.create_receiver("alarms", credit=0)
        assert taken(receiver, 1) == ["9/2"]
        update(broker, "alarms", priority="none")
        assert taken(receiver, 3) == ["4/0", "0/1", "4/3"]
        update(broker, "alarms", priority="fair")
        assert sorted(taken(receiver, 4)) == ["0/6", "5/7", "7/4", "9/5"]


def deep(broker: RunningBroker, count: int, *levels: int) -> None:
    """A backlog of low priorities, more than memory is to hold."""
    with Connection(broker.url) as connection:
        sender = connection.sender("deep")
        for number in range(count):
            level = levels[number % len(levels)]
            made = Message(body=f"{level}/{number}/{'x' * 4000}", durable=True)
            made.priority = level
            sender.send(bytes(made.encode()), 20)
        sender.flush(30)


def numbers(receiver: BlockingReceiver, count: int) -> list[tuple[int, int]]:
    return [tuple(map(int, body.split("/")[:2])) for body in taken(receiver, count)]  # type: ignore[misc]


def test_high_priorities_overtake_what_is_on_disk(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    count = 2500
    with connected(broker) as connection:
        deep(broker, count, 1)
        await_number(broker, "deep", "depth_msgs", count)
        wait_until(lambda: number_of(broker, "deep", "paged_msgs") > 0, 20, "the backlog to be paged")
        with pytest.raises(OperatorError, match="on disk"):
            update(broker, "deep", priority="none")
        put(connection.create_sender("deep"), 9, 5)
        receiver = connection.create_receiver("deep", credit=50)
        found = numbers(receiver, 600)
        assert found[:3] == [(9, 0), (5, 1), (1, 0)]
        assert found[2:] == [(1, number) for number in range(598)]
    again = killed_and_started(broker, start_broker)
    with connected(again) as connection:
        put(connection.create_sender("deep"), 7)
        receiver = connection.create_receiver("deep", credit=50)
        found = numbers(receiver, number_of(again, "deep", "depth_msgs"))
        assert found[0] == (7, 0)
        # What was on its way comes again, nothing is lost.
        assert found[1:] == [(1, number) for number in range(found[1][1], count)]
        assert found[1][1] <= 598
    await_number(again, "deep", "depth_msgs", 0)


def test_a_deep_backlog_is_in_its_levels_after_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG, POLICIES)
    count = 3000
    deep(broker, count, 0, 7, 4)
    await_number(broker, "deep", "depth_msgs", count)
    again = killed_and_started(broker, start_broker)
    assert number_of(again, "deep", "depth_msgs") == count
    assert number_of(again, "deep", "paged_msgs") > 0
    with connected(again) as connection:
        put(connection.create_sender("deep"), 9)
        receiver = connection.create_receiver("deep", credit=50)
        found = numbers(receiver, count + 1)
    assert found[0] == (9, 0)
    levels = [(level, number) for number in range(count) for level in [(0, 7, 4)[number % 3]]]
    assert found[1:] == sorted(levels, key=lambda each: (-each[0], each[1]))
    await_number(again, "deep", "depth_msgs", 0)


def test_messages_are_counted_by_priority(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        put(connection.create_sender("alarms"), *LEVELS)
    assert queue_of(broker, "alarms")["priority_msgs"] == [2, 0, 0, 0, 2, 1, 0, 1, 0, 2]
