"""Transactions in the ways of Qpid JMS: a discharge right behind its sends, a consumer that closes early."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message

from tests.wire.conftest import StartBroker, wait_until
from tests.wire.seeing import await_number, number_of
from tests.wire.test_transactions import Controller, body_of

pytestmark = pytest.mark.wire

POLICIES = """
policies:
  - {match: small, flow_stop_count: 10, flow_resume_count: 5}
"""


@pytest.mark.parametrize("sizes", [(3 << 20, 10, 3 << 20, 10), (10, 3 << 20), (3 << 20,)])
def test_a_commit_has_what_is_still_on_its_way_to_a_file(
    start_broker: StartBroker, sizes: tuple[int, ...]
) -> None:
    broker = start_broker("", POLICIES)
    client = Controller(broker.url)
    sender = client.sender("orders")
    for _ in range(5):
        transaction = client.declare()
        for size in sizes:
            transaction.send(sender, Message(body=b"x" * size, durable=True))
        client.commit(transaction)
        assert not client.rejected
    await_number(broker, "orders", "depth_msgs", 5 * len(sizes))
    taker = Controller(broker.url)
    got = taker.take(taker.receiver("orders"), 5 * len(sizes))
    assert [len(bytes(body_of(message))) for _, message in got] == [*sizes] * 5


def test_a_transaction_with_a_refused_message_does_not_commit(start_broker: StartBroker) -> None:
    broker = start_broker("", POLICIES)
    client = Controller(broker.url)
    sender = client.sender("orders")
    transaction = client.declare()
    transaction.send(sender, Message(body="now"))
    transaction.send(sender, Message(body="later", annotations={"x-opt-delivery-delay": "soon"}))
    transaction.commit()
    client.until(lambda: len(client.discharge_refused) == 1, "the refusal of the commit")
    assert number_of(broker, "orders", "depth_msgs") == 0


def has_credit(idle: Controller, client: Controller, sender: Any) -> bool:
    idle.run(0.005)
    client.run(0.005)
    return bool(sender.credit > 0)


def test_idle_credit_comes_back_for_a_transaction(start_broker: StartBroker) -> None:
    broker = start_broker("", POLICIES)
    idle, client = Controller(broker.url), Controller(broker.url)
    idle.sender("small")
    sender = client.sender("small")
    transaction = client.declare()
    for number in range(10):
        wait_until(lambda: has_credit(idle, client, sender), 10, f"credit for message {number}")
        transaction.send(sender, Message(body=number))
    client.commit(transaction)
    assert number_of(broker, "small", "depth_msgs") == 10


def test_a_consumer_that_closes_after_a_rollback_fails_no_message_but_that(start_broker: StartBroker) -> None:
    broker = start_broker("", POLICIES)
    client = Controller(broker.url)
    sender = client.sender("orders")
    for number in range(5):
        sender.send(Message(body=number))
    client.run(0.2)
    for attempt in range(3):
        taker = Controller(broker.url)
        receiver = taker.receiver("orders")
        got = taker.take(receiver, 5)
        assert got[0][1].delivery_count == attempt
        transaction = taker.declare(True)
        transaction.accept(got[0][0])
        taker.abort(transaction)
        receiver.close()
        taker.run(0.1)
        taker.connection.close()
        taker.run(0.1)
    last = Controller(broker.url)
    got = last.take(last.receiver("orders"), 5)
    assert [message.delivery_count for _, message in got] == [3, 1, 1, 1, 1]
    assert [message.body for _, message in got] == [0, 1, 2, 3, 4]
