"""A stock Spring Boot application that moves 10,000 messages between queues, and where each must end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from proton import Timeout
from proton.utils import BlockingConnection

from tests.clients.programs import SPRING
from tests.clients.running import Running
from tests.wire.conftest import RunningBroker, in_one_cell, wait_until
from tests.wire.seeing import number_of

COUNT = 10_000
# A look takes the broker longer than moving a message.
EVERY_S = 0.3
# One in a hundred always fails (spring/src/main/java/sluice/clients/spring/Work.java).
DEAD = {str(number) for number in range(COUNT) if number % 100 == 7}
MOVED = {str(number) for number in range(COUNT)} - DEAD
POLICIES = "policies:\n  - {match: '*', durable: true}\n"
# The template's factory is its container's, so that both have one session; see docs/clients.md.
ONE_FACTORY = "--spring.jms.cache.enabled=false"


@contextmanager
def broker_at(folder: Path, *words: str) -> Iterator[RunningBroker]:
    running = RunningBroker(folder / "broker", "", POLICIES + in_one_cell("#"), words)
    try:
        yield running
        assert "Traceback" not in running.log, running.log
    finally:
        running.stop()


@contextmanager
def spring(broker: RunningBroker, *words: str) -> Iterator[Running]:
    """The application at work; Spring connects it again, not Qpid JMS (docs/clients.md says why)."""
    running = Running(SPRING.path, *SPRING.run, f"--amqphub.amqp10jms.remote-url={broker.url}", *words)
    try:
        yield running
    finally:
        running.stop()


def feed(broker: RunningBroker, count: int = COUNT) -> None:
    """Fill `orders`, each batch sent and rolled back once before it is committed."""
    with spring(broker, f"--mover.feed={count}") as feeding:
        wait_until(lambda: f"fed {count}" in feeding.lines, 300, "all to be fed")
    assert number_of(broker, "orders", "depth_msgs") == count


def wait_until_over(broker: RunningBroker, moving: Running) -> None:
    """Until every message has been moved or is a dead letter."""

    def is_over() -> bool:
        return (
            number_of(broker, "orders", "depth_msgs") == 0
            and number_of(broker, "DLQ", "depth_msgs") == len(DEAD)
            and number_of(broker, "invoices", "depth_msgs") >= len(MOVED)
        )

    wait_until(is_over, 600, lambda: f"all to be moved:\n{moving.tail}", EVERY_S)


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
