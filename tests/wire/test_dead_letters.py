"""What can't be delivered, what expired and what came twice, with Proton's own clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection, BlockingReceiver

from broker.client.link import Connection
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import await_number, number_of

pytestmark = pytest.mark.wire

REASON = symbol("x-opt-sluice-dead-letter-reason")
ADDRESS = symbol("x-opt-sluice-original-address")
TIME = symbol("x-opt-sluice-dead-letter-time")
COUNT = symbol("x-opt-sluice-dead-letter-count")

POLICIES = """\
policies:
  - match: "#"
    dead_letter_address: dead
  - match: "small"
    max_count: 1
    flow_control: false
    overflow: dead_letter
  - match: "once"
    duplicate_window: 2
"""


@contextmanager
def connected(broker: RunningBroker) -> Iterator[BlockingConnection]:
    made = BlockingConnection(broker.url, timeout=10)
    try:
        yield made
    finally:
        made.close()


def taken(receiver: BlockingReceiver) -> Message:
    """The next message, accepted."""
    message = receiver.receive(timeout=10)
    receiver.accept()
    return message


def told_by(letter: Message) -> dict[object, Any]:
    """What a dead letter tells of itself."""
    assert letter.annotations is not None
    return dict(letter.annotations)


def fail(receiver: BlockingReceiver) -> Message:
    """The next message, handed back as a delivery that failed (AMQP 1.0 §3.4.5)."""
    message = receiver.receive(timeout=10)
    assert receiver.fetcher is not None
    receiver.fetcher.unsettled[0].local.failed = True
    receiver.settle(Delivery.MODIFIED)
    return message


def test_a_rejected_message_is_a_dead_letter(start_broker: StartBroker) -> None:
    before_ms = time.time() * 1000
    with connected(start_broker(policies=POLICIES)) as connection:
        sent = Message(body="x", id="1", durable=True, ttl=3600, annotations={symbol("x-opt-k"): 5})
        connection.create_sender("orders").send(sent)
        receiver = connection.create_receiver("orders", credit=1)
        receiver.receive(timeout=10)
        receiver.reject()
        letter = taken(connection.create_receiver("dead", credit=1))
    assert (letter.body, letter.id, letter.durable, letter.ttl) == ("x", "1", True, 0)
    told = told_by(letter)
    assert before_ms - 1 <= told.pop(TIME) <= time.time() * 1000 + 1
    assert told == {REASON: "rejected", ADDRESS: "orders", COUNT: 1, symbol("x-opt-k"): 5}


def test_ten_failed_deliveries_make_a_dead_letter_which_is_never_dropped(start_broker: StartBroker) -> None:
    with connected(start_broker(policies=POLICIES)) as connection:
        connection.create_sender("orders").send(Message(body="x"))
        orders = connection.create_receiver("orders", credit=1)
        assert [fail(orders).delivery_count for _ in range(10)] == list(range(10))
        dead = connection.create_receiver("dead", credit=1)
        # The pattern that sends letters there matches that place as well, and limits nothing in it.
        letters = [fail(dead) for _ in range(12)]
        assert [letter.delivery_count for letter in letters] == list(range(12))
        assert told_by(letters[0])[REASON] == "max-delivery-count"
        assert taken(dead).body == "x"


@pytest.mark.parametrize("when", ["ttl", "absolute"])
def test_an_expired_message_is_a_dead_letter_and_stays_one(start_broker: StartBroker, when: str) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        connection.create_sender("dead")
        soon = time.time() + 0.3
        message = Message(body="x", ttl=0.3) if when == "ttl" else Message(body="x", expiry_time=soon)
        connection.create_sender("orders").send(message)
        await_number(broker, "dead", "depth_msgs", 1)
        # Its absolute expiry is past, and can't be changed: it belongs to the bare message (§3.2).
        letter = taken(connection.create_receiver("dead", credit=1))
    assert (told_by(letter)[REASON], told_by(letter)[ADDRESS]) == ("expired", "orders")
    assert (letter.expiry_time > 0) == (when == "absolute")


def test_what_finds_no_room_is_a_dead_letter(start_broker: StartBroker) -> None:
    with connected(start_broker(policies=POLICIES)) as connection:
        sender = connection.create_sender("small")
        for body in ("first", "second"):
            sender.send(Message(body=body))
        letter = taken(connection.create_receiver("dead", credit=1))
        assert (letter.body, told_by(letter)[REASON]) == ("second", "overflow")
        assert taken(connection.create_receiver("small", credit=1)).body == "first"


def test_a_ttl_reads_what_is_left_of_it(start_broker: StartBroker) -> None:
    with connected(start_broker(policies=POLICIES)) as connection:
        connection.create_sender("orders").send(Message(body="x", ttl=600))
        time_passes(0.2)
        message = taken(connection.create_receiver("orders", credit=1))
    assert 500 < message.ttl <= 599.8


@pytest.mark.parametrize("expiry_ms", [2**42, 2**50, 2**62, 2**63 - 1])
def test_what_expires_far_away_is_delivered(start_broker: StartBroker, expiry_ms: int) -> None:
    """Some clients write the largest number for "never", and 0 for no ttl."""
    header = b"\x00\x53\x70\xc0\x04\x03\x41\x40\x43"
    properties = b"\x00\x53\x73\xc0\x12\x09" + 8 * b"\x40" + b"\x83" + expiry_ms.to_bytes(8, "big")
    data = header + properties + b"\x00\x53\x77\xa1\x01x"
    broker = start_broker(policies=POLICIES)
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        sender.send(data, timeout_s=10)
        sender.flush(10)
        (delivered,) = connection.receiver("orders", credit=1).take(1, timeout_s=10)
    assert delivered.endswith(data[len(header) :])
    assert "Traceback" not in broker.log


def time_passes(seconds: float) -> None:
    """The one thing there is nothing to wait for but the clock."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, seconds + 5, "the clock")


def test_a_message_that_comes_twice_is_kept_once(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES)
    with connected(broker) as connection:
        sender = connection.create_sender("once")
        for id_ in ("a", "b", "a", "c", "a"):
            sender.send(Message(body=id_, id=id_))
        sender.send(Message(body="no id"))
        sender.send(Message(body="no id"))
        assert number_of(broker, "once", "depth_msgs") == 6
        receiver = connection.create_receiver("once", credit=10)
        # A window of two: by the third "a" the first is forgotten.
        assert [taken(receiver).body for _ in range(6)] == ["a", "b", "c", "a", "no id", "no id"]
