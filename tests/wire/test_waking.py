"""Whoever waits goes on where room, or a group, comes free though no message leaves."""

from __future__ import annotations

import time
from threading import Thread

import pytest
from proton import Message
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached, SendException

from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, number_of
from tests.wire.test_consumer_timeout import TimeoutProperty
from tests.wire.test_streams import connected

pytestmark = pytest.mark.wire

SECONDS = 8


def test_a_duplicate_gives_its_credit_back(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: q, flow_stop_count: 1, duplicate_window: 10}\n")
    with connected(broker) as client:
        sender = client.create_sender("q")
        sender.send(Message(body="x", id="x"), timeout=SECONDS)
        receiver = client.create_receiver("q", credit=1)
        receiver.receive(SECONDS)
        receiver.accept()
        for _ in range(3):
            sender.send(Message(body="x", id="x"), timeout=SECONDS)
        sender.send(Message(body="y", id="y"), timeout=SECONDS)
        assert receiver.receive(SECONDS).body == "y"


def test_a_message_that_is_refused_gives_its_credit_back(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: q, flow_stop_count: 1, max_size: 1KB, overflow: reject}\n"
    )
    with connected(broker) as client:
        sender = client.create_sender("q")
        for _ in range(2):
            with pytest.raises(SendException):
                sender.send(Message(body="." * 5000), timeout=SECONDS)
        sender.send(Message(body="small"), timeout=SECONDS)


def test_one_that_is_too_large_slows_its_sender_no_longer(start_broker: StartBroker) -> None:
    """A credit reserves what its link's messages had: not one that could never come in."""
    broker = start_broker(policies="policies:\n  - {match: q, max_size: 100KB, overflow: reject}\n")
    with connected(broker) as client:
        sender = client.create_sender("q")
        for number in range(20):
            sender.send(Message(body=number), timeout=SECONDS)
        with pytest.raises(SendException):
            sender.send(Message(body="." * 200_000), timeout=SECONDS)
        sender.send(Message(body="after"), timeout=SECONDS)
        client.wait(lambda: sender.link.credit > 10, timeout=SECONDS, msg="credit for more than one")


def test_those_behind_a_message_that_was_refused_in_time_go_on(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: q, flow_stop_size: 1MB, flow_resume_size: 900KB, max_size: 4MB,"
        " when_full: reject_after, reject_after: 3s}\n"
    )
    with connected(broker) as client, connected(broker) as other:
        large, small = client.create_sender("q", name="large"), other.create_sender("q", name="small")
        large.send(Message(body="." * 500_000), timeout=SECONDS)
        refused: list[float] = []
        begun = time.monotonic()

        def send_large() -> None:
            with pytest.raises(SendException):
                large.send(Message(body="." * 600_000), timeout=SECONDS)
            refused.append(time.monotonic() - begun)

        waiting = Thread(target=send_large)
        waiting.start()
        await_number(broker, "q", "parked_msgs", 1)
        time.sleep(1)
        small.send(Message(body="small"), timeout=SECONDS)
        waiting.join(30)
        assert refused


def test_producers_go_on_when_the_reader_that_held_them_leaves(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies="policies:\n  - {match: s, kind: stream, flow_stop_count: 10, flow_resume_count: 5,"
        " enforce_flow: with_active_consumers}\n"
    )
    with connected(broker) as client:
        sender = client.create_sender("s")
        with connected(broker) as reading:
            reading.create_receiver("s::billing", credit=50, name="billing")
            for number in range(10):
                sender.send(Message(body=number), timeout=SECONDS)
            reading.container.do_work(0.1)
        sender.send(Message(body="after"), timeout=SECONDS)


def test_a_node_s_limit_holds_on_the_anonymous_relay(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - {match: q, max_message_size: 1KB}\n")
    with connected(broker) as client:
        relay = client.create_sender(None)
        relay.send(Message(address="q", body="small"), timeout=SECONDS)
        with pytest.raises(SendException):
            relay.send(Message(address="q", body="." * 5000), timeout=SECONDS)
        relay.send(Message(address="q", body="small"), timeout=SECONDS)
        with pytest.raises(LinkDetached):
            client.create_sender("q").send(Message(body="." * 5000), timeout=SECONDS)
    assert number_of(broker, "q", "depth_msgs") == 2


def test_a_link_that_is_refused_leaves_nothing_behind(broker: RunningBroker) -> None:
    """Its handle is another link's soon: what the broker still knew of it would be freed memory."""
    client = BlockingConnection(broker.url, timeout=20)
    for _ in range(20):
        with pytest.raises(LinkDetached, match="consumer_timeout"):
            client.create_receiver("orders", options=TimeoutProperty("soon"))
        client.create_receiver("orders", credit=5, options=NoOption()).close()  # type: ignore[no-untyped-call]
    client.create_sender("orders").send(Message(body="x"), timeout=SECONDS)
    client.close()
    await_number(broker, "orders", "consumers", 0)


class NoOption(LinkOption):
    """Changes nothing."""

    def apply(self, link: object) -> None:
        """Leave the link as it is."""
