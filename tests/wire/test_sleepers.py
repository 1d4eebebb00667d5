"""Durable subscribers that are away, beside those that are there: `enforce_flow: with_active_consumers`."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.link import Connection, Sender
from broker.codec import sections
from broker.codec.owned import owned
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, credit_comes, number_of, queue_of
from tests.wire.terminus import LASTING, connected, detach
from tests.wire.test_budgets import number_in

pytestmark = [pytest.mark.wire, pytest.mark.flow]

# In bytes the hard limit is that of a hundred such messages: far below what the tests send.
SETTINGS = "match: news, kind: topic, durable: true, flow_stop_count: 20, flow_resume_count: 10"
EMS = f"policies:\n  - {{{SETTINGS}, max_count: 60, max_size: 120KB, enforce_flow: with_active_consumers}}\n"
REJECTS = EMS.replace("max_count", "overflow: reject, max_count")
SIZE = 1000


def fall_asleep(broker: RunningBroker) -> str:
    """Make a durable subscription and leave it; its name."""
    with connected(broker.url, "app") as app:
        detach(app.create_receiver("news", name="keeps", options=LASTING, credit=0))
    return "news/app.keeps"


def message(number: int) -> bytes:
    return sections.header(durable=True) + sections.binary_body(str(number).encode().ljust(SIZE, b"."))


def publish(sender: Sender, first: int, count: int) -> None:
    for number in range(first, first + count):
        sender.send(message(number), timeout_s=30)
    sender.flush(30)


def publish_beside(broker: RunningBroker, first: int, count: int) -> None:
    """Send so many while somebody else takes them all, no more of them under way than the threshold."""
    with Connection(broker.url) as reading, Connection(broker.url) as source:
        receiver, sender = reading.receiver("news", credit=100), source.sender("news")
        for start in range(first, first + count, 10):
            publish(sender, start, 10)
            read: list[int] = []
            while len(read) < 10:
                taken = receiver.take(10, timeout_s=20)
                assert taken, "the one who is there gets it"
                read += [number_in(each) for each in taken]
            assert read == list(range(start, start + 10))
            # The client tells of what it took with its next request.
            reading.pump()
        assert sender.accepted == count


def waken(broker: RunningBroker, count: int) -> list[int]:
    """The numbers that the sleeper finds."""
    numbers: list[int] = []
    with connected(broker.url, "app") as app:
        receiver = app.create_receiver("news", name="keeps", options=LASTING, credit=100)
        while len(numbers) < count:
            found = receiver.receive(timeout=20)
            numbers.append(int(owned(found.body).split(b".")[0]))
            receiver.accept()
        detach(receiver)
    return numbers


def test_a_sleeper_beside_one_who_is_there_stops_nobody_and_loses_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Before a restart and after it; the sleeper's backlog is many times its hard limit."""
    args = ("--data", str(tmp_path / "kept"))
    broker = start_broker("", EMS, args)
    sleeper = fall_asleep(broker)
    publish_beside(broker, 0, 300)
    seen = queue_of(broker, sleeper, "subscription")
    assert (seen["depth_msgs"], seen["dropped"], seen["flowStoppedCount"]) == (300, 0, 0)
    assert number_of(broker, sleeper, "paged_msgs", "subscription") > 0, "it isn't all in memory"
    broker.stop()
    broker = start_broker("", EMS, args)
    publish_beside(broker, 300, 300)
    with Connection(broker.url) as source:
        # Nobody is there at all: it goes on as well.
        publish(source.sender("news"), 600, 100)
    assert number_of(broker, sleeper, "depth_msgs", "subscription") == 700
    assert waken(broker, 700) == list(range(700))
    assert number_of(broker, sleeper, "dropped", "subscription") == 0


def test_publishers_are_held_by_those_who_are_there_alone(start_broker: StartBroker) -> None:
    broker = start_broker("", EMS)
    sleeper = fall_asleep(broker)
    publish_beside(broker, 0, 100)
    with Connection(broker.url) as slow, Connection(broker.url) as source:
        receiver, sender = slow.receiver("news", credit=5), source.sender("news")
        number = 100
        while credit_comes(broker, source, sender):
            sender.send(message(number), timeout_s=20)
            number += 1
        assert number - 100 == 20, "not one more than the threshold of who is there"
        assert queue_of(broker, "news", "topic")["flowStopped"] is True
        assert number_of(broker, sleeper, "depth_msgs", "subscription") == 120
        got = 0
        while got < 15:
            got += len(receiver.take(5, timeout_s=20))
        slow.pump()
        assert source.wait_until(sender.may_send, 20)


def test_a_sleeper_who_comes_back_is_caught_up_with_first(start_broker: StartBroker) -> None:
    """Its threshold holds again: more waits for it than that, and publishers wait until it doesn't."""
    broker = start_broker("", EMS)
    sleeper = fall_asleep(broker)
    with Connection(broker.url) as source:
        sender = source.sender("news")
        publish(sender, 0, 200)
        with connected(broker.url, "app") as app:
            receiver = app.create_receiver("news", name="keeps", options=LASTING, credit=1)
            await_number(broker, "news", "promised_msgs", 0, "topic")
            assert queue_of(broker, "news", "topic")["flowStopped"] is True
            assert not credit_comes(broker, source, sender, 0.5)
            detach(receiver)
        assert source.wait_until(sender.may_send, 20), "it has left"
        assert waken(broker, 200) == list(range(200))
        assert source.wait_until(sender.may_send, 20)
        publish(sender, 200, 30)
    assert number_of(broker, sleeper, "depth_msgs", "subscription") == 30


def test_where_overflow_says_reject_a_sleeper_s_hard_limit_is_told_to_publishers(
    start_broker: StartBroker,
) -> None:
    """EMS's `rejectIncoming`: nobody has a message whose sender hears `rejected`, and nothing is dropped."""
    broker = start_broker("", REJECTS)
    sleeper = fall_asleep(broker)
    publish_beside(broker, 0, 60)
    with Connection(broker.url) as reading, Connection(broker.url) as source:
        receiver, sender = reading.receiver("news", credit=100), source.sender("news")
        publish(sender, 60, 10)
        assert (sender.accepted, sender.rejected) == (0, 10)
        seen = queue_of(broker, sleeper, "subscription")
        assert (seen["depth_msgs"], seen["dropped"]) == (60, 0)
        assert number_of(broker, "news", "refused", "topic") == 10
        assert waken(broker, 60) == list(range(60))
        publish(sender, 70, 10)
        assert sender.accepted == 10
        read: list[int] = []
        while len(read) < 10:
            read += [number_in(each) for each in receiver.take(10, timeout_s=20)]
        assert read == list(range(70, 80))
