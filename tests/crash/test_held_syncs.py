"""An operator's answer waits for the disk: nobody hears of what a sync that is held back may lose."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection

from broker.client.request import Management
from tests.crash.conftest import Broker
from tests.crash.shim import Shim
from tests.crash.watching import until

QUEUE = "orders"
POLICIES = "policies:\n  - {match: orders, durable: true}\n"
HOUR_MS = 3_600_000
# How often the broker is asked something else meanwhile, and answers.
ASKED = 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "broker", POLICIES)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


@pytest.fixture
def shim(broker: Broker, tmp_path: Path) -> Iterator[Shim]:
    made = Shim(tmp_path, broker.data)
    broker.start(env=made.env)
    yield made
    made.clear()


def waiting(broker: Broker) -> list[int]:
    """The numbers of the messages that wait for their time, asked over HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=20)
    connection.request("GET", f"/api/v1/queues/{QUEUE}/delayed")
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return [each["number"] for each in found["messages"]]


def cancel_by_management(broker: Broker, number: int) -> bool:
    """Cancel a message; return whether that was confirmed."""
    with Management(broker.url) as management:
        management.call("cancel", "org.sluice.broker", body={"name": QUEUE, "number": number})
    return True


def cancel_by_http(broker: Broker, number: int) -> bool:
    """Cancel a message; return whether that was confirmed. After 5 s the API says that it wasn't."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=20)
    connection.request("DELETE", f"/api/v1/queues/{QUEUE}/delayed/{number}")
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    assert answer.status == 204 or "the disk has not taken it down in time" in said
    return answer.status == 204


def have_two_wait(broker: Broker, shim: Shim, how: str) -> None:
    """Have two messages wait for their time, in one of four ways."""
    client = BlockingConnection(broker.url, timeout=20)
    sender = client.create_sender(QUEUE)
    later = {symbol("x-opt-delivery-delay"): HOUR_MS}
    for _ in range(2):
        annotations = None if how == "given back" else later
        sender.send(Message(body="later", durable=how != "not durable", annotations=annotations))
    if how == "given back":
        receiver = client.create_receiver(QUEUE, credit=2)
        assert receiver.fetcher is not None
        for _ in range(2):
            receiver.receive(timeout=20)
            delivery = receiver.fetcher.unsettled.popleft()
            delivery.local.annotations = later
            delivery.local.failed = True
            delivery.update(Delivery.MODIFIED)
            delivery.settle()
        # This sends what was settled, too.
        receiver.close()  # type: ignore[no-untyped-call]
        until([], lambda: len(waiting(broker)) == 2, what="both to wait")
    client.close()
    if how == "restarted":
        broker.stop()
        broker.start(env=shim.env)


@pytest.mark.parametrize("how", ["sent", "restarted", "given back", "not durable"])
@pytest.mark.parametrize("cancel", [cancel_by_management, cancel_by_http])
def test_a_cancelled_message_is_answered_once_that_is_on_disk(
    broker: Broker, shim: Shim, cancel: Callable[[Broker, int], bool], how: str
) -> None:
    have_two_wait(broker, shim, how)
    first, second = waiting(broker)
    shim.on("held")
    with ThreadPoolExecutor(1) as others:
        answer = others.submit(cancel, broker, first)
        try:
            until([], lambda: waiting(broker) == [second] or answer.done(), what="it to be cancelled")
            if how != "not durable":
                for _ in range(ASKED):
                    assert waiting(broker) == [second], "the broker answers what needs no disk"
                assert not (answer.done() and answer.result()), "the answer has come before the sync"
                shim.off("held")
                answer.result(20)
            else:
                assert answer.result(20), "nothing of it is on disk"
        finally:
            shim.clear()
    assert waiting(broker) == [second]
