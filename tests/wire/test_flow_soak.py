"""Clients come, go and vanish, thresholds, policies and gates change: every law holds meanwhile."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from broker.cli.terminal.ask import operation
from broker.client.errors import ClientError
from broker.client.link import Connection, Receiver
from broker.client.request import Management
from broker.codec.sections import DATA, section
from broker.errors import OperatorError, SluiceError
from tests.wire.conftest import RunningBroker, StartBroker, wait_until

pytestmark = pytest.mark.flow

QUEUES = ("q.a", "q.b", "q.strict", "q.paged", "q.ring")
TOPICS = ("t.a", "t.b")
POLICIES = """policies:
  - {match: "q.#", flow_stop_count: 60, flow_resume_count: 40}
  - {match: q.strict, flow_stop_size: 64KB, byte_reservation: strict, max_message_size: 8KB}
  - {match: q.paged, overflow: page, memory_limit: 64KB, flow_stop_count: 0}
  - {match: q.ring, overflow: ring, max_count: 30, flow_stop_count: 0}
  - {match: "t.#", kind: topic, flow_stop_count: 40}
  - {match: "t.*/shed.#", kind: subscription, pending_message_limit: 10}
"""
CONFIG = "memory_limit: 3MB\nflow: {connection_memory_limit: 512KB, consumer_flow_limit: 20}\n"
CLIENTS = 12
CHECKED_EVERY_S = 0.25
WAIT_S = 0.3


def message(size: int) -> bytes:
    return section(DATA) + b"\xb0" + size.to_bytes(4, "big") + bytes(size)


class Crowd:
    """Threads that use the broker at random until they are told to stop; what they did wrong is kept."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        self.broker = broker
        self.stop = threading.Event()
        self.faults: list[BaseException] = []
        self.done = 0
        jobs: list[Callable[[random.Random], None]] = [self.produce, self.consume, self.subscribe]
        self.threads = [
            threading.Thread(target=self._run, args=(jobs[number % 3], random.Random(seed + number)))
            for number in range(CLIENTS)
        ]
        self.threads.append(threading.Thread(target=self._run, args=(self.operate, random.Random(seed))))

    def _run(self, job: Callable[[random.Random], None], chance: random.Random) -> None:
        while not self.stop.is_set():
            try:
                job(chance)
                self.done += 1
            except (ClientError, SluiceError):
                pass  # refused, timed out, its node deleted: all of it is allowed here
            except BaseException as fault:  # noqa: BLE001 - told by the test
                self.faults.append(fault)
                return

    def produce(self, chance: random.Random) -> None:
        with Connection(self.broker.url) as connection:
            for _ in range(chance.randrange(1, 4)):
                address = chance.choice(QUEUES + TOPICS)
                sender = connection.sender(address, presettled=chance.random() < 0.3, timeout_s=WAIT_S)
                for _ in range(chance.randrange(1, 120)):
                    sender.send(message(chance.choice((20, 100, 100, 4000))), WAIT_S)
                if chance.random() < 0.5:
                    sender.close()
            self._vanish(connection, chance)

    def consume(self, chance: random.Random) -> None:
        with Connection(self.broker.url) as connection:
            receivers = [
                connection.receiver(chance.choice(QUEUES), credit=chance.randrange(1, 100), timeout_s=WAIT_S)
                for _ in range(chance.randrange(1, 3))
            ]
            for _ in range(chance.randrange(1, 30)):
                chance.choice(receivers).take(chance.randrange(1, 20), 0.02)
            self._vanish(connection, chance)

    def subscribe(self, chance: random.Random) -> None:
        container = chance.choice(("keep", "shed"))
        with Connection(self.broker.url, container_id=container) as connection:
            receiver = connection.receiver(
                chance.choice((*TOPICS, "t.*")), credit=chance.randrange(1, 50), timeout_s=WAIT_S
            )
            for _ in range(chance.randrange(1, 30)):
                receiver.take(chance.randrange(1, 20), 0.02)
            self._vanish(connection, chance)

    def _vanish(self, connection: Connection, chance: random.Random) -> None:
        """Some leave without a word, with messages unsettled and credit unused."""
        if chance.random() < 0.3:
            with socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    def operate(self, chance: random.Random) -> None:
        with Management(self.broker.url) as management:
            for _ in range(20):
                if self.stop.is_set():
                    return
                address = chance.choice(QUEUES + TOPICS)
                # A setting may not fit the others the node has.
                with suppress(OperatorError):
                    self._change(management, chance, address)
                self.stop.wait(0.02)

    def _change(self, management: Management, chance: random.Random, address: str) -> None:
        kind = "org.sluice.topic" if address in TOPICS else "org.sluice.queue"
        verb = chance.randrange(6)
        if verb == 0:
            operation(management, "stop-producers", target=chance.choice((address, "q.*", ">")))
        elif verb <= 2:
            for target in (address, "q.*", ">"):
                operation(management, "start-producers", target=target)
        elif verb == 3:
            stop = chance.choice((1, 7, 50, 200, 0))
            settings = {"flow_stop_count": stop, "flow_resume_count": stop // 2}
            management.call("UPDATE", kind, address, settings)
        elif verb == 4:
            text = POLICIES.replace("60", str(chance.randrange(41, 300)))
            operation(management, "apply", text=text, file="soak")
        else:
            management.call("purge", type=kind, name=address)


def audited(broker: RunningBroker) -> dict[str, object]:
    with Management(broker.url) as management:
        return dict(operation(management, "audit"))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seconds", [8.0, pytest.param(600.0, marks=pytest.mark.soak)])
def test_every_law_holds_while_everything_changes(start_broker: StartBroker, seconds: float) -> None:
    broker = start_broker(CONFIG, POLICIES)
    crowd = Crowd(broker, seed=1)
    for thread in crowd.threads:
        thread.start()
    checks = 0
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not crowd.faults:
            found = audited(broker)
            assert found["breaches"] == []
            checks += 1
            time.sleep(CHECKED_EVERY_S)
    finally:
        crowd.stop.set()
        for thread in crowd.threads:
            thread.join(30)
    assert crowd.faults == []
    assert "Traceback" not in broker.log, broker.log
    assert crowd.done > CLIENTS
    print(f"\n{checks} audits, {crowd.done:,} visits of clients, no breach")
    nobody_starves(broker)
    wait_until(lambda: audited(broker)["promised_msgs"] == 0, 10, "the credit of those who left")
    assert audited(broker)["breaches"] == []


def nobody_starves(broker: RunningBroker) -> None:
    """Afterwards many producers of each queue have their messages taken in, beside one consumer."""
    with Management(broker.url) as management:
        for target in (*QUEUES, *TOPICS, "q.*", ">"):
            operation(management, "start-producers", target=target)
        operation(management, "apply", text=POLICIES, file="soak")
        for address in QUEUES:
            management.call("purge", type="org.sluice.queue", name=address)
    for address in QUEUES:
        with Connection(broker.url) as consumer, Connection(broker.url) as producer:
            receiver = consumer.receiver(address, credit=50)
            taken = threading.Event()

            def drain(receiver: Receiver = receiver, taken: threading.Event = taken) -> None:
                while not taken.is_set():
                    receiver.take(50, 0.05)

            senders = [producer.sender(address, timeout_s=10) for _ in range(8)]
            draining = threading.Thread(target=drain)
            draining.start()
            try:
                for _ in range(20):
                    for sender in senders:
                        sender.send(message(100), 10)
                for sender in senders:
                    sender.flush(10)
            finally:
                taken.set()
                draining.join(10)
            assert [sender.accepted for sender in senders] == [20] * 8
