"""Stopping in order, on real processes."""

from __future__ import annotations

import signal

import pytest
from proton import Message
from proton.utils import BlockingConnection, ConnectionClosed

from tests.wire.conftest import RunningBroker, StartBroker

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
    with pytest.raises(ConnectionClosed, match="amqp:connection:forced"):
        connection.wait(lambda: False, timeout=20)
    # Its socket too is ours to close: left to the collector it is some later test's warning.
    connection.close()
    assert broker.process.wait(20) == 0
