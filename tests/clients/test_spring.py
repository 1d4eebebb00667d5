"""A stock Spring Boot application: 10,000 messages in and out, listeners that throw, over restarts too."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from proton import Message, Timeout
from proton.utils import BlockingConnection

from tests.clients.conftest import Clients
from tests.clients.programs import SPRING
from tests.clients.running import Running
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.seeing import number_of

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

COUNT = 10_000
# One in a hundred always fails (spring/src/main/java/sluice/clients/spring/Work.java).
DEAD = {str(number) for number in range(COUNT) if number % 100 == 7}
MOVED = {str(number) for number in range(COUNT)} - DEAD
POLICIES = "policies:\n  - {match: '*', durable: true}\n"
# The template's factory is its container's, so that both have one session; see docs/clients.md.
ONE_FACTORY = "--spring.jms.cache.enabled=false"


@pytest.fixture
def built(clients: Clients) -> None:
    clients.built(SPRING)


@contextmanager
def broker_at(folder: Path, *words: str) -> Iterator[RunningBroker]:
    running = RunningBroker(folder / "broker", "", POLICIES, words)
    try:
        yield running
        assert "Traceback" not in running.log, running.log
    finally:
        running.stop()


@contextmanager
def spring(broker: RunningBroker, *words: str) -> Iterator[Running]:
    """The application at work, with a connection that comes again by itself, as docs/clients.md advises."""
    options = "failover.reconnectDelay=200&failover.useReconnectBackOff=false&jms.sendTimeout=15000"
    url = f"failover:({broker.url})?{options}"
    running = Running(SPRING.path, *SPRING.run, f"--amqphub.amqp10jms.remote-url={url}", *words)
    try:
        yield running
    finally:
        running.stop()


def feed(broker: RunningBroker, count: int = COUNT) -> None:
    """Fill `orders`, each batch sent and rolled back once before it is committed."""
    with spring(broker, f"--mover.feed={count}") as feeding:
        wait_until(lambda: f"fed {count}" in feeding.lines, 300, "all to be fed")
    assert number_of(broker, "orders", "depth_msgs") == count


def is_over(broker: RunningBroker) -> bool:
    return (
        number_of(broker, "orders", "depth_msgs") == 0
        and number_of(broker, "DLQ", "depth_msgs") == len(DEAD)
        and number_of(broker, "invoices", "depth_msgs") >= len(MOVED)
    )


def drained(broker: RunningBroker, address: str) -> Counter[str]:
    """All that a queue holds."""
    found: Counter[str] = Counter()
    connection = BlockingConnection(broker.url, timeout=60)
    try:
        receiver = connection.create_receiver(address, credit=1000)
        for _ in range(number_of(broker, address, "depth_msgs")):
            found[str(receiver.receive(timeout=30).body)] += 1
            receiver.accept()
        with pytest.raises(Timeout):
            receiver.receive(timeout=0.5)
    finally:
        connection.close()
    return found


def check(broker: RunningBroker) -> None:
    assert drained(broker, "invoices") == Counter(MOVED)
    assert drained(broker, "DLQ") == Counter(DEAD)


LISTENERS = {
    "stock": ("--mover.listener=stock",),
    "stock-concurrent": ("--mover.listener=stock", "--mover.concurrency=4"),
    "template": ("--mover.listener=template", ONE_FACTORY),
    "managed": ("--mover.listener=managed", "--mover.concurrency=2"),
}


@pytest.mark.usefixtures("built")
def test_a_stock_listener_gets_a_message(tmp_path: Path) -> None:
    with broker_at(tmp_path) as broker, spring(broker, "--mover.listener=stock") as moving:
        connection = BlockingConnection(broker.url, timeout=30)
        connection.create_sender("orders").send(Message("1", durable=True))
        answer = connection.create_receiver("invoices").receive(timeout=60)
        connection.close()
        assert answer.body == "1"
        wait_until(lambda: number_of(broker, "orders", "depth_msgs") == 0, 30, "the order to be gone")
        assert moving.process.poll() is None


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("listener", LISTENERS)
def test_ten_thousand_end_where_they_belong(tmp_path: Path, listener: str) -> None:
    with broker_at(tmp_path) as broker:
        feed(broker)
        with spring(broker, *LISTENERS[listener]) as moving:
            wait_until(lambda: is_over(broker), 600, lambda: f"all to be moved:\n{moving.tail}")
        check(broker)


@pytest.mark.usefixtures("built")
def test_a_template_with_a_cache_is_not_in_the_listeners_transaction(tmp_path: Path) -> None:
    """Spring Boot's doing since 3.4, which docs/clients.md warns of."""
    with broker_at(tmp_path) as broker:
        feed(broker, 100)
        with spring(broker, "--mover.listener=template"):
            wait_until(lambda: number_of(broker, "DLQ", "depth_msgs") == 1, 120, "the dead letter")
            wait_until(lambda: number_of(broker, "orders", "depth_msgs") == 0, 120, "all to be moved")
        sent = drained(broker, "invoices")
        assert (sent["1"], sent["3"], sent["7"]) == (1, 2, 10)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("listener", ["stock-concurrent", "template"])
def test_ten_thousand_end_where_they_belong_although_the_broker_restarts(
    tmp_path: Path, listener: str, end: signal.Signals
) -> None:
    with broker_at(tmp_path) as broker:
        feed(broker)
        with spring(broker, *LISTENERS[listener]) as moving:
            wait_until(lambda: number_of(broker, "invoices", "depth_msgs") > 2000, 300, "some to be moved")
            broker.signal(end)
            broker.stop()
            with broker_at(tmp_path, "--listen", f"amqp://127.0.0.1:{broker.port}") as again:
                wait_until(lambda: is_over(again), 600, lambda: f"all to be moved:\n{moving.tail}")
                moving.stop()
                check(again)
