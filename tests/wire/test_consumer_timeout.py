"""What a live consumer holds too long goes to others, and its late settlement changes nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from proton import Delivery, Message, symbol
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from broker.client.link import Connection
from broker.client.request import Management
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import await_number, number_of
from tests.wire.test_transactions import Controller

pytestmark = pytest.mark.wire

POLICIES = """
policies:
  - {match: orders, consumer_timeout: 1s, max_delivery_count: 3, dead_letter_address: grave}
"""


class TimeoutProperty(LinkOption):
    """The link property `consumer_timeout`, as a client gives it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def apply(self, link: object) -> None:
        link.properties = {symbol("consumer_timeout"): self.value}  # type: ignore[attr-defined]


def send(broker: RunningBroker, address: str, *bodies: str, durable: bool = False) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender(address)
        for body in bodies:
            sender.send(bytes(Message(body=body, durable=durable).encode()), 20)
        sender.flush(20)


def unsettled(receiver: BlockingReceiver) -> deque[Delivery]:
    """What it was sent and has not settled, oldest first."""
    assert receiver.fetcher is not None
    return receiver.fetcher.unsettled


def settled_by_the_broker(connection: BlockingConnection, delivery: Delivery) -> None:
    connection.wait(lambda: delivery.settled, timeout=20, msg="the broker to settle it")


@pytest.mark.parametrize("durable", [False, True])
def test_a_message_held_too_long_goes_to_another_and_the_holder_is_told(
    start_broker: StartBroker, durable: bool
) -> None:
    kept = POLICIES.replace("orders,", f"orders, durable: {str(durable).lower()},")
    broker = start_broker("", kept)
    send(broker, "orders", "a", durable=durable)
    holder = BlockingConnection(broker.url, timeout=20)
    receiver = holder.create_receiver("orders", credit=1)
    assert receiver.receive(20).body == "a"
    begun = time.monotonic()
    (delivery,) = unsettled(receiver)
    connection = BlockingConnection(broker.url, timeout=20)
    other = connection.create_receiver("orders", credit=1)
    found = other.receive(20)
    assert time.monotonic() - begun >= 0.9
    assert (found.body, found.delivery_count) == ("a", 1)
    other.accept()
    connection.close()
    settled_by_the_broker(holder, delivery)
    assert delivery.remote_state == Delivery.MODIFIED
    # Too late: it is another's by now.
    receiver.reject()
    await_number(broker, "orders", "depth_msgs", 0)
    send(broker, "orders", "b")
    assert number_of(broker, "orders", "timed_out") == 1
    assert number_of(broker, "orders", "rejected") == 0
    receiver.flow(1)
    assert receiver.receive(20).body == "b"
    receiver.accept()
    # A client that blocks writes what it says when it waits next.
    holder.close()
    await_number(broker, "orders", "depth_msgs", 0)


def test_a_consumer_that_hangs_on_every_time_makes_a_dead_letter(start_broker: StartBroker) -> None:
    broker = start_broker("", POLICIES)
    send(broker, "orders", "poison")
    connection = BlockingConnection(broker.url, timeout=30)
    receiver = connection.create_receiver("orders", credit=10)
    for count in range(3):
        assert receiver.receive(20).delivery_count == count
    connection.wait(lambda: all(each.settled for each in unsettled(receiver)), timeout=20)
    await_number(broker, "grave", "depth_msgs", 1)
    assert number_of(broker, "orders", "timed_out") == 3
    connection.close()


def test_those_it_settles_in_time_stay_its_own(start_broker: StartBroker) -> None:
    broker = start_broker("", POLICIES)
    send(broker, "orders", *map(str, range(50)))
    connection = BlockingConnection(broker.url, timeout=20)
    receiver = connection.create_receiver("orders", credit=50)
    assert receiver.receive(20).body == "0"
    for number in range(1, 50):
        assert receiver.receive(20).body == str(number)
        last = unsettled(receiver).pop()
        last.update(Delivery.ACCEPTED)
        last.settle()
    (held,) = unsettled(receiver)
    settled_by_the_broker(connection, held)
    await_number(broker, "orders", "accepted", 49)
    assert number_of(broker, "orders", "timed_out") == 1
    connection.close()


def test_a_link_may_ask_for_less_time(broker: RunningBroker) -> None:
    send(broker, "orders", "a")
    connection = BlockingConnection(broker.url, timeout=20)
    receiver = connection.create_receiver("orders", credit=1, options=TimeoutProperty(300))
    assert isinstance(receiver, BlockingReceiver)
    receiver.receive(20)
    (delivery,) = unsettled(receiver)
    settled_by_the_broker(connection, delivery)
    connection.close()


def test_a_time_that_is_none_is_refused(broker: RunningBroker) -> None:
    connection = BlockingConnection(broker.url, timeout=20)
    with pytest.raises(Exception, match="consumer_timeout"):
        connection.create_receiver("orders", options=TimeoutProperty("soon"))
    connection.close()


def test_it_is_set_and_lifted_at_work(broker: RunningBroker) -> None:
    send(broker, "orders", "a")
    connection = BlockingConnection(broker.url, timeout=20)
    receiver = connection.create_receiver("orders", credit=1)
    receiver.receive(20)
    (delivery,) = unsettled(receiver)
    with Management(broker.url) as management:
        management.call("UPDATE", "org.sluice.queue", "orders", {"consumer_timeout": "500ms"})
    settled_by_the_broker(connection, delivery)
    wait_until(lambda: number_of(broker, "orders", "timed_out") == 1, 20, "it to be counted")
    connection.close()


@pytest.mark.parametrize("commits", [True, False])
def test_an_outcome_that_was_told_in_a_transaction_waits_for_that(
    start_broker: StartBroker, commits: bool
) -> None:
    """The message isn't its consumer's to hold any more: only the end of the transaction decides about it."""
    broker = start_broker("", POLICIES)
    send(broker, "orders", "a", "b")
    controller = Controller(f"127.0.0.1:{broker.port}")
    receiver = controller.receiver("orders")
    transaction = controller.declare()
    (told, _), (held, _) = controller.take(receiver, 2)
    transaction.accept(told)
    # The other one shows that the time is over.
    controller.until(lambda: bool(held.settled), "the broker to take back what was told no outcome", 20)
    assert not told.settled
    assert number_of(broker, "orders", "timed_out") == 1
    if commits:
        controller.commit(transaction)
        controller.until(lambda: bool(told.settled), "the broker to settle it")
    else:
        controller.abort(transaction)
        # Proton's client releases what it had accepted.
        controller.until(lambda: number_of(broker, "orders", "unsettled_msgs") == 0, "its release")
    receiver.close()
    controller.run(0.1)
    assert number_of(broker, "orders", "depth_msgs") == (1 if commits else 2)
    with Connection(broker.url) as connection:
        taken = connection.receiver("orders").take(1 if commits else 2, 20)
    found = Message()
    found.decode(taken[0])
    assert (found.body, found.delivery_count) == (("b", 1) if commits else ("a", 0))
    controller.close()


class SmallWindow(LinkOption):
    """A session that takes a little of a large message, and then no more: nobody takes it from there."""

    def apply(self, link: object) -> None:
        link.session.incoming_capacity = 1 << 17  # type: ignore[attr-defined]


def test_a_large_message_that_stalls_half_way_goes_to_another(start_broker: StartBroker) -> None:
    broker = start_broker("", POLICIES)
    send(broker, "orders", "." * 5_000_000)
    stalled = BlockingConnection(broker.url, timeout=20)
    stalled.create_receiver("orders", credit=1, options=SmallWindow())
    with pytest.raises(LinkDetached, match="consumer_timeout"):
        stalled.wait(lambda: False, timeout=15)
    with connected_to(broker) as connection:
        other = connection.create_receiver("orders", credit=1)
        assert other.receive(20).body == "." * 5_000_000
        other.accept()
    stalled.close()


@contextmanager
def connected_to(broker: RunningBroker) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(broker.url, timeout=20)
    try:
        yield connection
    finally:
        connection.close()
