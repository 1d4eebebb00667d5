"""Deadlocks through the broker, with real clients: found, said once, cleared when over.

How soon is shown where the clock is the test's own, in tests/unit/flow/test_deadlock.py.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker.client.request import Management
from broker.flow.deadlock import GRACE_NS
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.frames import ACCEPTED, DETACH, DISPOSITION, FLOW, Described, RawPeer, performative, transfer
from tests.wire.seeing import await_number, update
from tests.wire.test_cli_wire import sluice

pytestmark = [pytest.mark.wire, pytest.mark.flow]

POLICIES = "policies:\n  - match: '>'\n    flow_stop_count: 10\n    flow_resume_count: 5\n"
# A connection that settles nothing for so long is stuck.
GRACE_S = GRACE_NS / 1e9


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

    def __init__(self, source: str, target: str, connection: BlockingConnection) -> None:
        self.receiver = connection.create_receiver(source, credit=3)
        self.sender = connection.create_sender(target)
        self.ended = threading.Event()
        self.is_sending = False
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
                self.is_sending = True
                self.sender.send(message, timeout=60)
                self.is_sending = False
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
                started.append(Worker(source, target, connection))
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


class RawWorker(RawPeer):
    """A hand-made application: takes from one queue, settles nothing, sends to another until it may not."""

    def __init__(self, broker: RunningBroker, source: str, target: str) -> None:
        super().__init__(broker.port)
        self.open(container=f"{source}-{target}").begin()
        self.attach_receiver(source)
        self.give_credit(100)
        self.attach_sender(target)

    def produce(self) -> None:
        """All that it is allowed, which is what the queue holds."""
        credit = self.await_credit()
        for number in range(credit):
            self.send(transfer(number))
        assert credit == 10

    def settle_one(self) -> None:
        """Accept the first message it was sent."""
        self.send(performative(DISPOSITION, True, 0, 0, True, Described(ACCEPTED)))


@pytest.fixture
def ring(broker: RunningBroker) -> Iterator[list[RawWorker]]:
    with ExitStack() as stack:
        ways = [("q0", "q1"), ("q1", "q2"), ("q2", "q0")]
        yield [stack.enter_context(RawWorker(broker, *way)) for way in ways]


def test_figure_14_two_threads_and_two_destinations(
    broker: RunningBroker, workers: Callable[..., list[Worker]]
) -> None:
    one, two = workers(broker, ("A", "B"), ("B", "A"))
    starter = BlockingConnection(broker.url, timeout=10)
    starter.create_sender("A").send(Message(body="go"))
    starter.close()
    broker.wait_for_log("WARNING")
    assert one.is_sending
    assert two.is_sending
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
    assert broker.log.count("deadlock: ") == 1


def test_the_same_session_on_both_sides(broker: RunningBroker, workers: Callable[..., list[Worker]]) -> None:
    [both] = workers(broker, ("A", "A"))
    starter = BlockingConnection(broker.url, timeout=10)
    starter.create_sender("A").send(Message(body="go"))
    starter.close()
    broker.wait_for_log("WARNING")
    assert both.is_sending
    [found] = deadlocks(broker)
    assert found["nodes"] == ["A"]
    assert "which waits for it as well" in str(found["sentence"])
    both.amplify = 0
    update(broker, "A", flow_stop_count=1000)
    await_deadlock(broker, 0)


def test_a_ring_of_three_is_seen_everywhere(broker: RunningBroker, ring: list[RawWorker]) -> None:
    for peer in ring:
        peer.produce()
    broker.wait_for_log("deadlock: ")
    [found] = deadlocks(broker)
    assert sorted(found["nodes"]) == ["q0", "q1", "q2"]  # type: ignore[call-overload]
    assert isinstance(found["since"], str)
    # The command line, HTTP, the metrics and every link's own reason.
    table = sluice(broker, "stat", "-f")
    assert "Deadlocks" in table
    assert str(found["sentence"]) in table
    answers = json.loads(sluice(broker, "why", "q1", "--json"))
    assert [answer["cause"] for answer in answers if answer["subject"] == "producer"] == ["deadlock"]
    assert str(found["sentence"]) in answers[0]["sentence"]
    [shown] = get(broker, "/api/v1/deadlocks")["deadlocks"]
    assert shown["sentence"] == found["sentence"]
    assert "sluice_deadlocks 1" in page(broker, "/metrics")
    # It is over when one of them settles: what becomes of the room is somebody else's.
    for _ in range(6):
        ring[0].settle_one()
    await_deadlock(broker, 0)
    assert "Deadlocks" not in sluice(broker, "stat", "-f")
    assert "sluice_deadlocks 0" in page(broker, "/metrics")
    assert "sluice_deadlocks_found_total 1" in page(broker, "/metrics")


def test_a_free_consumer_keeps_it_from_being_one(broker: RunningBroker, ring: list[RawWorker]) -> None:
    with RawPeer(broker.port) as free:
        free.open().begin().attach_receiver("q1")
        free.give_credit(5)
        for peer in ring:
            peer.produce()
        await_number(broker, "q1", "flow_stopped_count", 1)
        await_number(broker, "q2", "flow_stopped_count", 1)
        await_number(broker, "q0", "flow_stopped_count", 1)
        assert not occurs_within(broker, "deadlock", 1.5)
        free.close()
        # What it held goes to the one who is stuck.
        broker.wait_for_log("deadlock: ")


def test_a_consumer_that_settles_now_and_then_is_not_stuck(
    broker: RunningBroker, ring: list[RawWorker]
) -> None:
    last, longest = time.monotonic(), 0.0
    for peer in ring:
        peer.produce()
    for number in range(5):
        # Of a full queue, so that nobody goes on.
        ring[2].send(performative(DISPOSITION, True, number, number, True, Described(ACCEPTED)))
        now = time.monotonic()
        last, longest = now, max(longest, now - last)
        said = occurs_within(broker, "deadlock", 0.2)
        longest = max(longest, time.monotonic() - last)
        # Where it was we who paused for that long, the broker is right to say so.
        assert not said or longest > 0.8 * GRACE_S


def test_a_sender_that_never_had_credit_says_what_it_has(broker: RunningBroker) -> None:
    """A full queue met by an application that comes late: only `available` shows that it wants to send."""
    with RawPeer(broker.port) as filler, RawWorker(broker, "A", "A") as late:
        late.send(performative(DETACH, 0, True))
        late.expect(DETACH)
        filler.open().begin().attach_sender("A", "filler")
        assert filler.await_credit() == 10
        for number in range(10):
            filler.send(transfer(number))
        await_number(broker, "A", "depth_msgs", 10)
        late.attach_sender("A", "again", handle=2)
        assert not occurs_within(broker, "deadlock", 1.0)
        late.send(performative(FLOW, 0, 10_000, 0, 10_000, 2, 0, 0, 5))
        broker.wait_for_log("deadlock: ")
        assert "which waits for it as well" in broker.log


def occurs_within(broker: RunningBroker, text: str, seconds: float) -> bool:
    """Whether the log says so in that time: what must not happen has no other end."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if text in broker.log:
            return True
        time.sleep(0.01)
    return False


def page(broker: RunningBroker, path: str) -> str:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{broker.http_port}{path}", timeout=START_SECONDS
    ) as answer:
        text: bytes = answer.read()
        return text.decode()


def get(broker: RunningBroker, path: str) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(page(broker, path))
    return found
