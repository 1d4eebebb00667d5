"""FLOW.md on the wire: what clients see of thresholds, windows, revocation and parking."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, SendException

from broker.client.link import Connection, Sender
from broker.client.request import Management
from broker.codec import sections
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    ACCEPTED,
    DISPOSITION,
    FLOW,
    TRANSFER,
    Described,
    RawPeer,
    performative,
    transfer,
)
from tests.wire.seeing import await_number, credit_comes, number_of, queue_of, update

pytestmark = [pytest.mark.wire, pytest.mark.flow]

BODY = sections.text_body("hello")
StartQueue = Callable[..., RunningBroker]


@pytest.fixture
def queue(start_broker: StartBroker) -> StartQueue:
    """A broker on which `orders` has the settings given."""

    def start(config: str = "", **settings: object) -> RunningBroker:
        lines = "".join(f"    {name}: {value}\n" for name, value in settings.items())
        return start_broker(config, f"policies:\n  - match: orders\n{lines}")

    return start


@pytest.fixture
def background() -> Iterator[Callable[[Callable[[], object]], threading.Thread]]:
    """Run a function on its own thread; it must have ended, without an exception, when the test ends."""
    threads: list[threading.Thread] = []
    faults: list[BaseException] = []

    def run(function: Callable[[], object]) -> threading.Thread:
        def guarded() -> None:
            try:
                function()
            except BaseException as fault:  # noqa: BLE001 - raised below, on the test's own thread
                faults.append(fault)

        threads.append(threading.Thread(target=guarded))
        threads[-1].start()
        return threads[-1]

    yield run
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    for fault in faults:
        raise fault


def send_all(broker: RunningBroker, count: int, **options: Any) -> None:
    """A producer that sends so many and waits for all outcomes."""
    with Connection(broker.url) as connection:
        sender = connection.sender("orders", **options)
        for _ in range(count):
            sender.send(BODY, 20)
        sender.flush(20)


def take_all(broker: RunningBroker, count: int) -> int:
    with Connection(broker.url) as connection:
        receiver = connection.receiver("orders", credit=50)
        got = 0
        while got < count:
            got += len(receiver.take(50, 20))
        return got


def fill(broker: RunningBroker, connection: Connection, sender: Sender) -> int:
    """Send for as long as there is credit, and a second and a half of the broker's more; how many went in."""
    while credit_comes(broker, connection, sender):
        sender.send(BODY, 20)
    sender.flush(10)
    return sender.accepted


@contextmanager
def blocking(broker: RunningBroker) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(broker.url, timeout=15)
    try:
        yield connection
    finally:
        connection.close()


class Producer(RawPeer):
    """A hand-made producer on `orders` that sees every flow frame."""

    def __init__(self, broker: RunningBroker) -> None:
        super().__init__(broker.port)
        self.open().begin().attach_sender("orders")
        self.sent = 0

    @property
    def credit(self) -> int:
        """What it may still send, by the next flow frame after asking for an echo."""
        self.send(performative(FLOW, 0, 10_000, self.sent, 10_000, 0, self.sent, None, 0, False, True))
        while self.expect(FLOW).field(4) != self._handles[0]:
            pass
        return self.may_send() - self.sent

    def await_credit_of(self, wanted: int) -> None:
        """Until the broker says that so much credit is left."""
        wait_until(lambda: self.credit == wanted, 10, f"a credit of {wanted}")

    def await_any_credit(self) -> None:
        """Until the broker says that any credit is left."""
        wait_until(lambda: self.credit > 0, 10, "credit")

    def produce(self, count: int) -> None:
        for _ in range(count):
            self.send(transfer(self.sent))
            self.sent += 1

    def accepted(self) -> int:
        """How many were accepted so far, as far as this was read."""
        ranges = [frame.fields for frame in self.log if frame.code == DISPOSITION]
        return sum((each[2] if each[2] is not None else each[1]) - each[1] + 1 for each in ranges)  # type: ignore[operator]


class Taker(RawPeer):
    """A hand-made consumer of `orders` that settles when it is told to."""

    def __init__(self, broker: RunningBroker, credit: int = 1000) -> None:
        super().__init__(broker.port)
        self.open().begin().attach_receiver("orders")
        self.give_credit(credit)
        self.received = self.settled = 0

    def settle(self, count: int) -> None:
        """Once they have come: an outcome that is read together with the credit names nothing yet."""
        last = self.settled + count - 1
        while self.received <= last:
            self.expect(TRANSFER)
            self.received += 1
        self.send(performative(DISPOSITION, True, self.settled, last, True, Described(ACCEPTED)))
        self.settled += count


# --- zero overshoot


def test_qpids_example(queue: StartQueue) -> None:
    """Stop 100, windows 50 and 15: Qpid lets up to 165 in. Here 100, and all of the 100."""
    broker = queue(flow_stop_count=100)
    with Connection(broker.url) as one, Connection(broker.url) as other:
        first, second = one.sender("orders", window=50), other.sender("orders", window=15)
        total = 0
        while total < (total := fill(broker, one, first) + fill(broker, other, second)):
            pass
        assert total == 100
    seen = queue_of(broker, "orders")
    assert (seen["depth_msgs"], seen["peak_msgs"], seen["flowStopped"]) == (100, 100, True)


@pytest.mark.parametrize("presettled", [False, True], ids=["unsettled", "pre-settled"])
def test_under_way_it_is_never_passed(
    queue: StartQueue, background: Callable[..., threading.Thread], presettled: bool
) -> None:
    broker = queue(flow_stop_count=100, flow_resume_count=70)
    for window in (50, 15, 200):
        background(lambda window=window: send_all(broker, 1000, window=window, presettled=presettled))
    assert take_all(broker, 3000) == 3000
    seen = queue_of(broker, "orders")
    assert isinstance(seen["peak_msgs"], int)
    assert isinstance(seen["overrun_msgs"], int)
    # A pre-settled message on revoked credit is counted, and waits outside the queue like any other.
    assert seen["peak_msgs"] <= 100
    assert presettled or seen["overrun_msgs"] == 0


def test_bytes_are_strict_where_every_credit_reserves_its_largest(
    queue: StartQueue, background: Callable[..., threading.Thread]
) -> None:
    broker = queue(flow_stop_size="16 KB", byte_reservation="strict", max_message_size="1 KB")

    def produce() -> None:
        with Connection(broker.url) as connection:
            sender = connection.sender("orders")
            for i in range(400):
                sender.send(sections.binary_body(bytes(i % 1000)), 20)
            sender.flush(20)

    for _ in range(3):
        background(produce)
    take_all(broker, 1200)
    assert 0 < number_of(broker, "orders", "peak_bytes") <= 16_384
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        assert fill(broker, connection, sender) > 16
    assert number_of(broker, "orders", "peak_bytes") <= 16_384


# --- stopped and open


def test_credit_stops_at_the_threshold_and_comes_back_below_resume(queue: StartQueue) -> None:
    broker = queue(flow_stop_count=10, flow_resume_count=5)
    with Producer(broker) as producer, Taker(broker) as taker:
        assert producer.await_credit() == 10
        producer.produce(10)
        await_number(broker, "orders", "depth_msgs", 10)
        producer.await_credit_of(0)
        assert queue_of(broker, "orders")["flowStopped"] is True
        taker.settle(5)
        await_number(broker, "orders", "depth_msgs", 5)
        producer.await_credit_of(0)
        taker.settle(1)
        producer.await_any_credit()
        seen = queue_of(broker, "orders")
        assert (seen["flowStopped"], seen["flowStoppedCount"]) == (False, 1)
        assert seen["depth_msgs"] == 4


def test_a_raised_threshold_lets_producers_in_without_a_consumer(queue: StartQueue) -> None:
    broker = queue(flow_stop_count=10)
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        assert fill(broker, connection, sender) == 10
        update(broker, "orders", flow_stop_count=25)
        assert fill(broker, connection, sender) == 25


def test_a_lowered_threshold_takes_credit_back(queue: StartQueue) -> None:
    broker = queue(flow_stop_count=100)
    with Producer(broker) as producer:
        assert producer.await_credit() == 100
        update(broker, "orders", flow_stop_count=10)
        producer.await_credit_of(10)
        assert number_of(broker, "orders", "promised_msgs") == 10


def test_an_operator_stops_and_starts_producers(queue: StartQueue) -> None:
    broker = queue(flow_stop_count=100)
    with Producer(broker) as producer, Management(broker.url) as operator:
        assert producer.await_credit() == 100
        operator.call("stop-producers", target="orders")
        producer.await_credit_of(0)
        assert queue_of(broker, "orders")["flowStopped"] is True
        producer.produce(1)
        await_number(broker, "orders", "parked_msgs", 1)
        assert number_of(broker, "orders", "depth_msgs") == 0
        operator.call("start-producers", target="orders")
        producer.expect(DISPOSITION)
        assert number_of(broker, "orders", "depth_msgs") == 1
        producer.await_any_credit()


def test_the_global_switch(queue: StartQueue) -> None:
    broker = queue("flow:\n  flow_control: false\n", flow_stop_count=10)
    send_all(broker, 500)
    seen = queue_of(broker, "orders")
    assert (seen["depth_msgs"], seen["flowStopped"]) == (500, False)


def test_enforced_only_with_active_consumers(queue: StartQueue) -> None:
    broker = queue(flow_stop_count=10, enforce_flow="with_active_consumers")
    send_all(broker, 50)
    with Producer(broker) as producer:
        producer.await_any_credit()
        with Taker(broker, credit=1):
            await_number(broker, "orders", "consumers", 1)
            producer.await_credit_of(0)
            assert queue_of(broker, "orders")["flowStopped"] is True
        await_number(broker, "orders", "consumers", 0)
        producer.await_any_credit()


# --- idle credit comes back


class IdleHandler(MessagingHandler):
    """Attaches a sender with Proton's defaults, and never sends."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.credited = threading.Event()

    def on_start(self, event: Any) -> None:
        event.container.create_sender(event.container.connect(self.url, reconnect=False), "orders")

    def on_sendable(self, event: Any) -> None:
        self.credited.set()

    def on_disconnected(self, event: Any) -> None:
        event.container.stop()


def test_credit_of_idle_clients_is_lent_on(
    queue: StartQueue, background: Callable[..., threading.Thread]
) -> None:
    """A MessagingHandler and a BlockingConnection sit on all there is; a third wants to send."""
    broker = queue(flow_stop_count=20, flow_resume_count=20)
    handler = IdleHandler(broker.url)
    background(Container(handler).run)
    assert handler.credited.wait(10)
    with blocking(broker) as idle:
        sender = idle.create_sender("orders")
        background(lambda: take_all(broker, 501))
        send_all(broker, 500)
        assert number_of(broker, "orders", "revocations") > 0
        # It sends one on credit it doesn't know it lost, and that one arrives as well.
        assert sender.send(Message(body="late")).remote_state == Delivery.ACCEPTED
    assert number_of(broker, "orders", "peak_msgs") <= 20
    broker.stop()


def test_a_late_message_is_parked_until_there_is_room(
    queue: StartQueue, background: Callable[..., threading.Thread]
) -> None:
    broker = queue(flow_stop_count=10)
    with blocking(broker) as idle, Connection(broker.url) as busy:
        sleeper = idle.create_sender("orders")
        idle.wait(lambda: sleeper.link.credit > 0, msg="credit")
        assert fill(broker, busy, busy.sender("orders")) == 10
        done: list[Delivery] = []
        background(lambda: done.append(sleeper.send(Message(body="late"))))
        await_number(broker, "orders", "parked_msgs", 1)
        seen = queue_of(broker, "orders")
        assert (seen["depth_msgs"], seen["peak_msgs"], seen["late_msgs"]) == (10, 10, 1)
        assert done == []
        with Taker(broker) as taker:
            taker.settle(1)
            wait_until(lambda: bool(done), 10, "the parked message to be accepted")
            assert done[0].remote_state == Delivery.ACCEPTED
            await_number(broker, "orders", "depth_msgs", 10)


def test_one_busy_producer_beside_999_idle_ones(queue: StartQueue) -> None:
    broker = queue(flow_stop_count=1000)
    with RawPeer(broker.port) as crowd, Connection(broker.url) as busy, Connection(broker.url) as taking:
        crowd.open().begin()
        for number in range(999):
            crowd.attach_sender("orders", f"idle{number}", number)
        await_number(broker, "orders", "producers", 999)
        sender, receiver = busy.sender("orders", window=1000), taking.receiver("orders")
        sent = got = most = 0
        while got < 20_000:
            while sent < 20_000 and sender.may_send():
                sender.send(BODY)
                sent += 1
                most = max(most, sender.credit)
            busy.pump()
            got += len(receiver.take(1000, 10 if sent == 20_000 else 0.001))
        sender.flush(10)
        assert sender.accepted == 20_000
        assert most > 300
    assert number_of(broker, "orders", "peak_msgs") <= 1000


# --- held back, refused, dropped


def test_the_relay_holds_the_settlement_while_its_node_is_stopped(
    queue: StartQueue, background: Callable[..., threading.Thread]
) -> None:
    broker = queue(flow_stop_count=5)
    send_all(broker, 5)
    with blocking(broker) as connection:
        relay = connection.create_sender(None)
        relay.send(Message(address="elsewhere", body="not held"))
        done: list[Delivery] = []
        background(lambda: done.append(relay.send(Message(address="orders", body="held"))))
        await_number(broker, "orders", "parked_msgs", 1)
        assert (number_of(broker, "orders", "depth_msgs"), done) == (5, [])
        with Taker(broker) as taker:
            taker.settle(1)
            wait_until(lambda: bool(done), 10, "the message to be accepted")
        assert done[0].remote_state == Delivery.ACCEPTED


@pytest.mark.parametrize(
    ("when_full", "least_s"), [({"when_full": "reject"}, 0), ({"reject_after": "500ms"}, 0.5)]
)
def test_when_full(queue: StartQueue, when_full: dict[str, str], least_s: float) -> None:
    broker = queue(flow_stop_count=3, **when_full)
    with blocking(broker) as connection:
        sender = connection.create_sender("orders")
        for _ in range(3):
            sender.send(Message(body="in"))
        began = time.monotonic()
        delivery: Any = sender.link.send(Message(body="out"))
        connection.wait(lambda: delivery.settled, msg="an outcome")
        assert time.monotonic() - began >= least_s
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:resource-limit-exceeded"
        delivery.settle()
        assert number_of(broker, "orders", "depth_msgs") == 3
        with Taker(broker, credit=1) as taker:
            taker.settle(1)
            await_number(broker, "orders", "depth_msgs", 2)
        assert sender.send(Message(body="again")).remote_state == Delivery.ACCEPTED


def test_reject_after_takes_what_finds_room_in_time(
    queue: StartQueue, background: Callable[..., threading.Thread]
) -> None:
    broker = queue(flow_stop_count=3, reject_after="60s")
    send_all(broker, 3)
    background(lambda: send_all(broker, 1))
    await_number(broker, "orders", "parked_msgs", 1)
    with Taker(broker) as taker:
        taker.settle(1)
        await_number(broker, "orders", "parked_msgs", 0)
        assert number_of(broker, "orders", "refused") == 0


def test_a_ring_keeps_the_newest(queue: StartQueue) -> None:
    broker = queue(max_count=10, overflow="ring")
    with Connection(broker.url) as connection:
        sender = connection.sender("orders")
        for number in range(25):
            sender.send(sections.text_body(str(number)), 20)
        sender.flush(20)
        assert sender.accepted == 25
        receiver = connection.receiver("orders")
        kept: list[bytes] = []
        while len(kept) < 10:
            taken = receiver.take(10, 10)
            assert taken, f"{len(kept)} of 10 came"
            kept += taken
        assert kept == [sections.text_body(str(number)) for number in range(15, 25)]
    assert number_of(broker, "orders", "dropped") == 15
    assert number_of(broker, "orders", "peak_msgs") == 10


def test_drop_newest_keeps_the_oldest(queue: StartQueue) -> None:
    broker = queue(max_count=10, overflow="drop_newest", flow_control="false")
    send_all(broker, 25)
    seen = queue_of(broker, "orders")
    assert (seen["depth_msgs"], seen["dropped"]) == (10, 15)


def test_the_hard_limit_rejects(queue: StartQueue) -> None:
    broker = queue(max_count=10, flow_control="false", overflow="reject")
    with blocking(broker) as connection:
        sender = connection.create_sender("orders")
        for _ in range(10):
            sender.send(Message(body="in"))
        with pytest.raises(SendException):
            sender.send(Message(body="out"))
    assert number_of(broker, "orders", "depth_msgs") == 10


# --- topics


def test_a_publisher_waits_for_the_slowest_subscription(start_broker: StartBroker) -> None:
    broker = start_broker(policies="policies:\n  - match: prices\n    kind: topic\n    flow_stop_count: 10\n")
    with ExitStack() as stack:
        publishing = stack.enter_context(Connection(broker.url))
        reading = stack.enter_context(Connection(broker.url))
        quick = reading.receiver("prices", credit=100)
        slow = RawPeer(broker.port).open().begin()
        stack.enter_context(slow)
        slow.attach_receiver("prices")
        sender = publishing.sender("prices")
        assert fill(broker, publishing, sender) == 10
        got = 0
        while got < 10:
            got += len(quick.take(10, 20))
        reading.pump()
        assert not publishing.wait_until(sender.may_send, 0.2)
        slow.close()
        assert publishing.wait_until(sender.may_send, 10)
