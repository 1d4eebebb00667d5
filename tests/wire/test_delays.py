"""Messages that are delivered later: never early, after restarts too."""

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


def now_ms() -> int:
    return int(time.time() * 1000)


def message(annotations: dict[Any, Any], body: Any = "x", **fields: Any) -> bytes:
    named = {symbol(key): value for key, value in annotations.items()}
    return bytes(Message(body=body, annotations=named, **fields).encode())


def decoded(data: bytes) -> Message:
    found = Message()
    found.decode(data)
    return found


def bodies(taken: list[bytes]) -> list[Any]:
    return [decoded(each).body for each in taken]


def sent(sender: Sender, *messages: bytes) -> list[tuple[int, str, str]]:
    """What was refused of them, and why, once all have an outcome."""
    for each in messages:
        sender.send(each, 20)
    sender.flush(20)
    return sender.rejections


@pytest.mark.parametrize(
    ("name", "value"),
    [(DELAY, 700), (DELAY, ulong(700)), (DELAY, int32(700)), (TIME, "a time"), (ENQUEUE, "a timestamp")],
)
def test_a_message_is_delivered_when_its_time_has_come(broker: RunningBroker, name: str, value: Any) -> None:
    begun = now_ms()
    if name != DELAY:
        value = timestamp(begun + 700) if name == ENQUEUE else begun + 700
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        receiver = connection.receiver("orders")
        delayed = message({"x-opt-other": 1, name: value, "x-opt-last": "z"}, "later")
        assert sent(sender, delayed, message({}, "now")) == []
        assert bodies(receiver.take(1, 20)) == ["now"]
        (late,) = receiver.take(1, 20)
    assert now_ms() >= begun + 700
    found = decoded(late)
    assert found.body == "later"
    # A delay has become a time, so that it doesn't begin anew anywhere.
    assert DELAY not in found.annotations
    if name == DELAY:
        assert begun + 700 <= found.annotations[TIME] <= now_ms()
    assert (found.annotations["x-opt-other"], found.annotations["x-opt-last"]) == (1, "z")
