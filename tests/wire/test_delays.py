"""Messages that are to be delivered later: refused, since at once would be wrong, too."""

from __future__ import annotations

import time
from typing import Any

import pytest
from proton import Message, int32, symbol, timestamp, ulong

from broker.client.errors import ClientError
from broker.client.link import Connection, Sender
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import number_of

pytestmark = pytest.mark.wire

DELAY = "x-opt-delivery-delay"
TIME = "x-opt-delivery-time"
ENQUEUE = "x-opt-scheduled-enqueue-time"
HOUR_MS = 3_600_000


def in_an_hour() -> int:
    return int(time.time() * 1000) + HOUR_MS


def message(annotations: dict[Any, Any], body: Any = "x", **fields: Any) -> bytes:
    named = {symbol(key): value for key, value in annotations.items()}
    return bytes(Message(body=body, annotations=named, **fields).encode())


def sent(sender: Sender, *messages: bytes) -> list[tuple[int, str, str]]:
    """What was refused of them, and why, once all have an outcome."""
    for each in messages:
        sender.send(each, 20)
    sender.flush(20)
    return sender.rejections


def refusal(name: str) -> tuple[str, str]:
    return "amqp:not-implemented", f"delivery can't be delayed, as the message annotation {name} asks for"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (DELAY, 1),
        (DELAY, ulong(5000)),
        (DELAY, int32(HOUR_MS)),
        (DELAY, 2**40),
        (DELAY, "soon"),
        (TIME, "in an hour"),
        (ENQUEUE, "in an hour as a timestamp"),
    ],
)
def test_a_message_that_is_to_be_delivered_later_is_refused(
    broker: RunningBroker, name: str, value: Any
) -> None:
    if name != DELAY:
        value = timestamp(in_an_hour()) if name == ENQUEUE else in_an_hour()
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        found = sent(sender, message({"x-opt-other": 1, name: value, "x-opt-last": "z"}), message({}))
        assert [each[1:] for each in found] == [refusal(name)]
        assert (sender.rejected, sender.accepted) == (1, 1)
    assert number_of(broker, "orders", "depth_msgs") == 1


@pytest.mark.parametrize(
    "annotations",
    [
        {DELAY: 0},
        {DELAY: ulong(0)},
        {DELAY: -5},
        {DELAY: None, TIME: None, ENQUEUE: None},
        {TIME: 1_000_000_000_000},
        {ENQUEUE: timestamp(1_000_000_000_000)},
        {ENQUEUE: timestamp(0)},
        {"x-opt-delivery-delays": 5, "x-opt-note": DELAY},
    ],
)
def test_what_asks_for_no_delay_is_taken(broker: RunningBroker, annotations: dict[str, Any]) -> None:
    data = message(annotations)
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        assert sent(sender, data) == []
        assert connection.receiver("orders").take(1, 20) == [data]


def test_one_that_is_settled_already_ends_its_link(broker: RunningBroker) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender("orders", presettled=True)
        with pytest.raises(ClientError, match=r"amqp:not-implemented.*x-opt-delivery-delay"):
            sent(sender, message({DELAY: 5}), *[message({})] * 2000)
    assert number_of(broker, "orders", "received") == 0


def test_what_is_refused_costs_no_credit(broker: RunningBroker) -> None:
    """More than any link has at once."""
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        sent(sender, *[message({DELAY: 5})] * 3000, message({}))
        assert (sender.rejected, sender.accepted) == (3000, 1)


@pytest.mark.parametrize("way", ["relay", "topic", "large", "durable"])
def test_by_whatever_way_it_comes(start_broker: StartBroker, way: str) -> None:
    config = "limits: {max_frame_size: 4KB, large_message_size: 4KB}\n"
    broker = start_broker(
        config, "policies:\n  - {match: news, kind: topic}\n  - {match: kept, durable: true}\n"
    )
    address = {"topic": "news", "durable": "kept"}.get(way, "orders")
    body = bytes(100_000) if way == "large" else b"x"
    fields: dict[str, Any] = {"address": address, "durable": way == "durable"}
    with Connection(broker.url) as connection:
        receiver = connection.receiver(address)
        sender = connection.sender(None if way == "relay" else address)
        later, now = (message({DELAY: delay}, body, **fields) for delay in (5, 0))
        assert [each[1:] for each in sent(sender, later, now)] == [refusal(DELAY)]
        (taken,) = receiver.take(1, 20)
        assert len(taken) > len(body)
        assert sender.accepted == 1
