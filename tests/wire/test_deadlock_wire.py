"""Deadlocks through the broker, with real clients: found within a second, said once, cleared when over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker.client.request import Management
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.seeing import update

pytestmark = [pytest.mark.wire, pytest.mark.flow]

POLICIES = "policies:\n  - match: '>'\n    flow_stop_count: 10\n    flow_resume_count: 5\n"
# What the graph may take, and what a busy machine may add to it.
WITHIN_S = 1.0


def deadlocks(broker: RunningBroker) -> list[dict[str, object]]:
    with Management(broker.url) as management:
        body = management.call("READ", "org.sluice.broker", "broker").body
    assert isinstance(body, dict)
    found = body["deadlocks"]
    assert isinstance(found, list)
    return found


def await_deadlock(broker: RunningBroker, count: int = 1, seconds: float = 10) -> list[dict[str, object]]:
    wait_until(lambda: len(deadlocks(broker)) == count, seconds, f"{count} deadlocks:\n{broker.log}")
    return deadlocks(broker)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker("", POLICIES)


class Worker:
    """An application's thread: for each message it takes it sends two, and only then accepts the first."""

    def __init__(
        self, broker: RunningBroker, source: str, target: str, connection: BlockingConnection
    ) -> None:
        self.receiver = connection.create_receiver(source, credit=3)
        self.sender = connection.create_sender(target)
        self.ended = threading.Event()
        self.blocked_since = 0.0
        self.sent = 0
        self.amplify = 2
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.ended.is_set():
            try:
                message = self.receiver.receive(timeout=0.2)
            except Exception:  # noqa: BLE001 - Proton's timeout, and what it raises when it is closed
                continue
            for _ in range(self.amplify):
                self.blocked_since = time.monotonic()
                self.sender.send(message, timeout=60)
                self.blocked_since = 0.0
                self.sent += 1
            self.receiver.accept()


@pytest.fixture
def workers() -> Iterator[Callable[..., list[Worker]]]:
    with ExitStack() as stack:
        started: list[Worker] = []

        def start(broker: RunningBroker, *ways: tuple[str, str]) -> list[Worker]:
            for source, target in ways:
                connection = BlockingConnection(broker.url, timeout=60)
                stack.callback(connection.close)
                started.append(Worker(broker, source, target, connection))
            for each in started:
                each.thread.start()
            return started

        yield start
        for each in started:
            each.ended.set()
            each.amplify = 0
        for each in started:
            each.thread.join(20)
            assert not each.thread.is_alive()


def test_figure_14_two_threads_and_two_destinations(
    broker: RunningBroker, workers: Callable[..., list[Worker]]
) -> None:
    one, two = workers(broker, ("A", "B"), ("B", "A"))
    starter = BlockingConnection(broker.url, timeout=10)
    starter.create_sender("A").send(Message(body="go"))
    starter.close()
    broker.wait_for_log("WARNING", 15)
    seen = time.monotonic()
    assert one.blocked_since
    assert two.blocked_since
    assert seen - max(one.blocked_since, two.blocked_since) < WITHIN_S + 0.5
    [found] = deadlocks(broker)
    assert sorted(found["nodes"]) == ["A", "B"]  # type: ignore[call-overload]
    assert len(found["connections"]) == 2  # type: ignore[arg-type]
    assert broker.log.count("deadlock: ") == 1
    # Room for one of them: it goes on, settles, and the circle is open.
    one.amplify = two.amplify = 0
    update(broker, "A", flow_stop_count=1000)
    update(broker, "B", flow_stop_count=1000)
    await_deadlock(broker, 0)
    broker.wait_for_log("deadlock over: ")
