"""Stopping in order, on real processes."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest
from proton import ConnectionException, Message, ProtonException
from proton.utils import BlockingConnection

from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.terminus import connected, flush

pytestmark = pytest.mark.wire


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_on_a_signal_with_nobody_there(broker: RunningBroker, number: signal.Signals) -> None:
    broker.signal(number)
    assert broker.process.wait(20) == 0


def test_what_is_in_flight_may_settle_and_nothing_more_is_sent(start_broker: StartBroker) -> None:
    broker = start_broker("limits:\n  shutdown_timeout: 5s\n")
    connection = BlockingConnection(broker.url)
    sender = connection.create_sender("orders")
    for n in range(20):
        sender.send(Message(body=n))
    receiver = connection.create_receiver("orders", credit=1)
    first = receiver.receive()
    broker.signal(signal.SIGTERM)
    broker.wait_for_log("stopping")
    receiver.accept()
    assert first.body == 0
    with pytest.raises(ConnectionException, match="disconnected"):
        connection.wait(lambda: False, timeout=20)
    # Its socket too is ours to close: left to the collector it is some later test's warning.
    connection.close()
    assert broker.process.wait(20) == 0


SMALL = (
    "policies:\n  - {match: work, dead_letter_address: small}\n"
    "  - {match: small, max_count: 2, flow_control: false, overflow: reject}\n"
    "  - {match: slow, flow_stop_count: 2, flow_resume_count: 1}\n"
)


@pytest.mark.parametrize("how", ["letters", "move"])
def test_a_stop_waits_for_no_message_that_only_waits_for_room(start_broker: StartBroker, how: str) -> None:
    """Nobody holds it, and nobody would settle it in any time: it stays where it is."""
    broker = start_broker("limits:\n  shutdown_timeout: 10m\n", SMALL)
    api = Api(broker)
    with connected(broker.url) as connection:
        sender = connection.create_sender("work")
        for n in range(10):
            sender.send(Message(body=n))
        if how == "letters":
            receiver = connection.create_receiver("work", credit=10)
            for _ in range(10):
                receiver.receive(10)
                receiver.reject()
            flush(connection)
            wait_until(lambda: api.get("/queues/work")["unsettled_msgs"] == 8, 10, "letters to wait")
            receiver.link.close()
        else:
            api.post("/queues/work/move", {"target": "slow"})
            wait_until(lambda: api.get("/queues/work")["unsettled_msgs"] > 0, 10, "messages to wait")
        broker.signal(signal.SIGTERM)
        with pytest.raises(ConnectionException, match="disconnected"):
            connection.wait(lambda: False, timeout=60)
    assert broker.process.wait(20) == 0


def test_a_stop_closes_the_port_takes_nothing_in_and_a_second_one_waits_for_nobody(
    start_broker: StartBroker,
) -> None:
    broker = start_broker("limits:\n  shutdown_timeout: 10m\n")
    status = None
    with suppress(ProtonException), connected(broker.url) as connection:
        sender = connection.create_sender("orders")
        sender.send(Message(body="held"))
        receiver = connection.create_receiver("orders", credit=1)
        receiver.receive(10)
        broker.signal(signal.SIGTERM)
        connection.wait(lambda: sender.link.credit == 0, timeout=20)
        with pytest.raises(ConnectionException):
            connect(broker)
        assert broker.process.poll() is None
        broker.signal(signal.SIGTERM)
        status = broker.process.wait(20)
        # Nobody answers its close any more.
        connection.timeout = 0.1
    assert status == 0


def connect(broker: RunningBroker) -> None:
    """For a moment."""
    BlockingConnection(broker.url, timeout=10).close()
