"""What is promised of a message holds in memory, on disk for want of memory, and after a kill."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message
from proton.utils import BlockingReceiver

from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.terminus import close, connected, flush

pytestmark = pytest.mark.wire

# Small enough for a backlog of some megabytes to be paged, and to be in pages of the store after a restart.
CONFIG = "store: {journal_file_size: 1 MB}\n"
COUNT, SIZE = 3000, 1000
PAGING = ", overflow: page, memory_limit: 300 KB"
# The first of them fail once; every tenth has expired by the time it could be taken.
FAILED = 3


@pytest.fixture(params=["memory", "paged"])
def policies(request: pytest.FixtureRequest) -> str:
    paging = PAGING if request.param == "paged" else ""
    limits = f"max_count: 10000, max_delivery_count: 2, dead_letter_address: dead{paging}"
    return f"policies:\n  - {{match: q, durable: true, {limits}}}\n  - {{match: dead, durable: true}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "broker"


def fill(broker: RunningBroker) -> None:
    with connected(broker.url) as connection:
        sender: Any = connection.create_sender("q")
        sent = []
        for number in range(COUNT):
            connection.wait(lambda: sender.link.credit > 0, timeout=60)
            sent.append(sender.link.send(made(number)))
        connection.wait(lambda: all(each.remote_state for each in sent), timeout=60)


def await_expiry(broker: RunningBroker, *, paged: bool) -> None:
    """Until all that expired before it was on disk is gone: the broker looks at it again half a second later.
    Messages that were paged out leave when they are read.
    """
    api, filled_s = Api(broker), time.monotonic()

    def is_over() -> bool:
        expired = api.get("/queues/q")["expired"]
        return bool(expired == COUNT // 10 or (paged and time.monotonic() - filled_s > 1))

    wait_until(is_over, 30, "messages to expire")


def made(number: int) -> Message:
    ttl = 0.001 if number % 10 == 9 else 0
    return Message(id=number, body=bytes(SIZE), durable=True, ttl=ttl)


def fail(broker: RunningBroker) -> None:
    """Deliveries that end with their failure."""
    with connected(broker.url) as connection:
        receiver: Any = connection.create_receiver("q", credit=0)
        receiver.link.flow(FAILED)
        came = receiver.fetcher.incoming
        connection.wait(lambda: len(came) == FAILED, timeout=30)
        assert [each.id for each, _ in came] == list(range(FAILED))
        for _, delivery in came:
            delivery.local.failed = True
            delivery.update(Delivery.MODIFIED)
            delivery.settle()
        came.clear()
        flush(connection)


def number_of(message: Message) -> int:
    assert isinstance(message.id, int)
    return message.id


def taken(receiver: BlockingReceiver, count: int) -> Iterator[Message]:
    for _ in range(count):
        yield receiver.receive(30)
        receiver.accept()


@pytest.mark.parametrize("kill", [False, True], ids=["running", "killed"])
def test_order_counts_expiry_and_letters_hold_wherever_a_message_lies(
    folder: Path, policies: str, kill: bool
) -> None:
    broker = RunningBroker(folder, CONFIG, policies, ())
    try:
        fill(broker)
        await_expiry(broker, paged="page" in policies)
        fail(broker)
        if kill:
            broker.signal(signal.SIGKILL)
            broker.stop()
            broker = RunningBroker(folder, CONFIG, policies, ())
        api = Api(broker)
        if "page" in policies:
            assert api.get("/queues/q")["paged_msgs"] > 0
        # The second failure of each is its last.
        fail(broker)
        kept = [number for number in range(FAILED, COUNT) if number % 10 != 9]
        with connected(broker.url) as connection:
            receiver = connection.create_receiver("q", credit=200)
            found = list(taken(receiver, len(kept)))
            flush(connection)
            assert [number_of(each) for each in found] == kept
            assert {each.delivery_count for each in found} == {0}
            close(receiver)
            dead = connection.create_receiver("dead", credit=COUNT)
            letters = [number_of(each) for each in taken(dead, FAILED + COUNT // 10)]
        assert [each for each in letters if each < FAILED] == list(range(FAILED))
        assert sorted(letters)[FAILED:] == list(range(9, COUNT, 10))
        wait_until(lambda: api.get("/broker")["depth_msgs"] == 0, 20, "everything to be taken")
    finally:
        broker.stop()
