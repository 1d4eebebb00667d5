"""A directory that a broker of an early version left when killed: this one serves all that is in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message

from broker.client.link import Connection, Receiver
from broker.store.check import check
from tests.crash.conftest import Broker
from tests.store.left_behind import (
    CONFIG,
    CONTAINER,
    LARGE,
    POLICIES,
    QUEUES,
    RETURNED,
    SUBSCRIPTION,
    TAKEN,
    message,
)
from tools.archives import unpack

pytestmark = pytest.mark.wire

ARCHIVE = Path(__file__).with_name("formats") / "before-copies.tar.xz"
FILE_BYTES = 1 << 20
ADDRESSES = (*QUEUES, "large", "through")
# Which of its messages each has still, by number.
LEFT = {address: range(TAKEN if address == "plain" else 0, count) for address, count in QUEUES.items()}


@pytest.fixture(params=["cut", "zeros"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker to be started on what was left: as it was cut off, or with zeros to the end of the file."""
    made = Broker(tmp_path / "broker", POLICIES, CONFIG)
    unpack(ARCHIVE, made.folder)
    [cut] = [path for path in made.data.glob("journal-*") if path.stat().st_size < FILE_BYTES]
    if request.param == "zeros":
        with cut.open("r+b") as file:
            file.truncate(FILE_BYTES)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def told(message: Message) -> tuple[object, ...]:
    """Return what a message has to bring, its body as a hash."""
    body = hashlib.sha256(str(message.body).encode()).hexdigest()
    return message.id, message.durable, message.group_id, message.group_sequence, body


def every(port: int, address: str, *, accept: bool) -> list[Message]:
    """Return all that an address has, and take it or leave it there."""
    is_topic = address == "news"
    held: list[tuple[int, bytes]] = []

    def is_more(receiver: Receiver) -> bool:
        found = receiver.hand_over()
        held.extend(found)
        return bool(found)

    with Connection(f"amqp://127.0.0.1:{port}", container_id=CONTAINER if is_topic else None) as connection:
        # The link isn't closed: that would end the subscription.
        name = SUBSCRIPTION if is_topic else None
        receiver = connection.receiver(address, name=name, durable=is_topic, manual=True)
        receiver.grant(1000)
        while connection.wait_until(lambda: is_more(receiver), 0.5):
            pass
        for delivery, _ in held:
            receiver.settle(delivery, "accepted" if accept else "released")
        connection.pump()
    found = []
    for _, data in held:
        decoded = Message()
        decoded.decode(data)
        found.append(decoded)
    return found


def test_each_message_is_there_in_its_order_and_is_gone_once_it_was_taken(broker: Broker) -> None:
    count = 1 + sum(len(numbers) for numbers in LEFT.values())
    assert sum(each.messages for each in check(broker.data).shelves) == count
    wanted = {
        address: [told(message(address, number)) for number in numbers] for address, numbers in LEFT.items()
    }
    for life in range(3):
        broker.start()
        is_last = life == 2
        found = {address: every(broker.port, address, accept=is_last) for address in ADDRESSES}
        assert found["through"] == []
        assert [each.body for each in found["large"]] == [LARGE]
        assert {name: [told(each) for each in found[name]] for name in wanted} == wanted
        if life == 0:
            counts = [each.delivery_count for each in found["plain"]]
            assert counts == [1] * RETURNED + [0] * (len(counts) - RETURNED)
            broker.kill()
        else:
            assert broker.stop() == 0
    assert not any(each.messages for each in check(broker.data).shelves)
    broker.start()
    assert not any(every(broker.port, address, accept=True) for address in ADDRESSES)
