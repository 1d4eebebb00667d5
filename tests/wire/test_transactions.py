"""Transactions over real connections, with Proton's client: who sees what when, and who gets on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import AtMostOnce, Container, LinkOption

from broker.client.link import Connection
from broker.client.request import Management
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.lines import Lines, lines  # noqa: F401
from tests.wire.seeing import await_number, credit_comes, number_of

pytestmark = pytest.mark.wire

POLICIES = """
policies:
  - {match: small, flow_stop_count: 5, flow_resume_count: 2}
  - {match: kept, durable: true}
  - {match: letters}
  - {match: ">", max_delivery_count: 3, dead_letter_address: letters}
"""

# An application that is killed while its transaction is open.
LOST = """
import os, signal, sys
from proton import Message
from tests.wire.test_transactions import Controller

lost = Controller(f"127.0.0.1:{sys.argv[1]}")
lost.sender("orders").send(Message(body="in"))
receiver = lost.receiver("orders")
out = lost.sender("done")
transaction = lost.declare(bool(sys.argv[2]))
transaction.accept(lost.take(receiver, 1)[0][0])
transaction.send(out, Message(body="out"))
lost.run(0.1)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Controller(MessagingHandler, TransactionHandler):
    """One connection that declares transactions; the test drives it with ``until``."""

    def __init__(self, url: str, prefetch: int = 0) -> None:
        super().__init__(prefetch=prefetch, auto_accept=False, auto_settle=True)
        self.url = url
        self.open: list[Any] = []
        self.committed = 0
        self.aborted = 0
        self.got: list[tuple[Any, Message]] = []
        self.accepted = 0
        self.rejected: list[str] = []
        self.discharge_refused: list[str] = []
        self.container = Container(self)
        self.container.timeout = 0.01
        self.container.start()
        self.connection = self.container.connect(url, reconnect=False)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.rejected} {self.discharge_refused}"
            self.container.process()

    def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.container.process()

    def declare(self, settle: bool = False) -> Any:
        before = len(self.open)
        self.container.declare_transaction(self.connection, handler=self, settle_before_discharge=settle)
        self.until(lambda: len(self.open) > before, "declared")
        return self.open[-1]

    def sender(self, address: str | None, **options: Any) -> Any:
        sender = self.container.create_sender(self.connection, address, **options)
        self.until(lambda: sender.credit > 0, f"credit at {address}")
        return sender

    def receiver(self, address: str) -> Any:
        return self.container.create_receiver(self.connection, address)

    def take(self, receiver: Any, msgs: int) -> list[tuple[Any, Message]]:
        receiver.flow(msgs)
        self.until(lambda: len(self.got) >= msgs, f"{msgs} messages")
        got, self.got = self.got, []
        return got

    def commit(self, transaction: Any) -> None:
        before = self.committed
        transaction.commit()
        self.until(lambda: self.committed > before, "committed")

    def abort(self, transaction: Any) -> None:
        before = self.aborted
        transaction.abort()
        self.until(lambda: self.aborted > before, "rolled back")

    def close(self) -> None:
        self.connection.close()
        self.run(0.1)

    def on_transaction_declared(self, event: Any) -> None:
        self.open.append(event.transaction)

    def on_transaction_committed(self, event: Any) -> None:
        self.committed += 1

    def on_transaction_aborted(self, event: Any) -> None:
        self.aborted += 1

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.discharge_refused.append("commit")

    def on_message(self, event: Any) -> None:
        self.got.append((event.delivery, event.message))

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1

    def on_rejected(self, event: Any) -> None:
        self.rejected.append(str(event.delivery.remote.condition))


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker("limits: {transaction_timeout: 1s, max_transactions: 3}\n", POLICIES)


@pytest.fixture
def controller(broker: RunningBroker) -> Iterator[Controller]:
    connected = Controller(f"127.0.0.1:{broker.port}")
    yield connected
    connected.close()


def body_of(message: Message) -> Any:
    return message.body


def test_others_see_what_was_posted_after_the_commit(broker: RunningBroker, controller: Controller) -> None:
    sender = controller.sender("orders")
    transaction = controller.declare()
    for n in range(3):
        transaction.send(sender, Message(body=n))
    controller.run(0.1)
    assert number_of(broker, "orders", "depth_msgs") == 0
    assert number_of(broker, "orders", "uncommitted_msgs") == 3
    controller.commit(transaction)
    assert number_of(broker, "orders", "depth_msgs") == 3
    assert number_of(broker, "orders", "uncommitted_msgs") == 0


def test_what_was_rolled_back_was_never_there(broker: RunningBroker, controller: Controller) -> None:
    sender = controller.sender("small")
    transaction = controller.declare()
    for n in range(5):
        transaction.send(sender, Message(body=n))
    controller.abort(transaction)
    assert number_of(broker, "small", "depth_msgs") == 0
    controller.until(lambda: sender.credit > 0, "credit again, for the room came back")


@pytest.mark.parametrize("settle", [False, True])
def test_what_was_taken_is_gone_once_it_is_committed(
    broker: RunningBroker, controller: Controller, settle: bool
) -> None:
    sender = controller.sender("orders")
    for n in range(4):
        sender.send(Message(body=n))
    controller.until(lambda: controller.accepted == 4, "sent")
    receiver = controller.receiver("orders")
    transaction = controller.declare(settle)
    for delivery, _ in controller.take(receiver, 4):
        transaction.accept(delivery)
    controller.run(0.1)
    assert number_of(broker, "orders", "depth_msgs") == 4
    controller.commit(transaction)
    await_number(broker, "orders", "depth_msgs", 0)


def test_what_was_taken_comes_back_in_order_with_its_count(
    broker: RunningBroker, controller: Controller
) -> None:
    sender = controller.sender("orders")
    for n in range(4):
        sender.send(Message(body=n))
    receiver = controller.receiver("orders")
    transaction = controller.declare(settle=True)
    for delivery, _ in controller.take(receiver, 4):
        transaction.accept(delivery)
    controller.abort(transaction)
    again = [(message.body, message.delivery_count) for _, message in controller.take(receiver, 4)]
    assert again == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_a_message_that_is_rolled_back_too_often_is_a_dead_letter(
    broker: RunningBroker, controller: Controller
) -> None:
    sender = controller.sender("orders")
    sender.send(Message(body="poison"))
    receiver = controller.receiver("orders")
    for _ in range(3):
        transaction = controller.declare(settle=True)
        transaction.accept(controller.take(receiver, 1)[0][0])
        controller.abort(transaction)
    await_number(broker, "letters", "depth_msgs", 1)
    assert number_of(broker, "orders", "depth_msgs") == 0


def test_closing_links_before_the_commit_changes_nothing(
    broker: RunningBroker, controller: Controller
) -> None:
    """JmsTemplate does: it closes producer and consumer, then commits."""
    sender = controller.sender("orders")
    sender.send(Message(body="in"))
    receiver = controller.receiver("orders")
    out = controller.sender("done")
    transaction = controller.declare(settle=True)
    transaction.accept(controller.take(receiver, 1)[0][0])
    transaction.send(out, Message(body="out"))
    controller.run(0.1)
    out.close()
    receiver.close()
    controller.run(0.1)
    controller.commit(transaction)
    await_number(broker, "orders", "depth_msgs", 0)
    await_number(broker, "done", "depth_msgs", 1)


@pytest.mark.parametrize("settle", [False, True])
def test_a_connection_that_is_lost_rolls_back(broker: RunningBroker, settle: bool) -> None:
    words = [sys.executable, "-c", LOST, str(broker.port), "settle" if settle else ""]
    assert subprocess.run(words, check=False, timeout=30).returncode == -signal.SIGKILL
    other = Controller(f"127.0.0.1:{broker.port}")
    assert other.take(other.receiver("orders"), 1)[0][1].delivery_count == 1
    assert number_of(broker, "done", "depth_msgs") == 0
    assert number_of(broker, "done", "uncommitted_msgs") == 0
    other.close()


def test_one_larger_than_the_room_there_is_is_told_and_ends(
    broker: RunningBroker,
    controller: Controller,
    lines: Lines,  # noqa: F811
) -> None:
    sender = controller.sender("small")
    transaction = controller.declare()
    for n in range(5):
        transaction.send(sender, Message(body=n))
    controller.run(0.1)
    assert sender.credit == 0, "five are there, as good as"
    told = lines("why", "small")
    assert "5 messages of open transactions keep its room" in told
    with Connection(broker.url) as connection:
        waiting = connection.sender("small")
        controller.until(lambda: sender.credit > 0, "its time is over, and the room is free", 5)
        assert credit_comes(broker, connection, waiting, 3)
    transaction.commit()
    controller.until(lambda: bool(controller.discharge_refused), "refused")
    assert number_of(broker, "small", "depth_msgs") == 0


def test_more_transactions_than_a_connection_may_have_are_refused(controller: Controller) -> None:
    open_now = [controller.declare() for _ in range(3)]
    failed: list[str] = []
    controller.on_transaction_declare_failed = lambda event: failed.append("no")  # type: ignore[method-assign]
    controller.container.declare_transaction(controller.connection, handler=controller)
    controller.until(lambda: bool(failed), "refused")
    controller.commit(open_now[0])
    controller.declare()


def test_a_message_in_a_transaction_that_isnt_there_is_refused(
    broker: RunningBroker, controller: Controller
) -> None:
    sender = controller.sender("orders")
    controller.declare()
    delivery = sender.delivery(sender.delivery_tag())
    delivery.local.data = [b"no such"]
    delivery.update(0x34)
    sender.stream(Message(body="x").encode())
    sender.advance()
    controller.until(lambda: bool(controller.rejected), "refused")
    assert "amqp:transaction:unknown-id" in controller.rejected[0]
    assert number_of(broker, "orders", "depth_msgs") == 0


def test_durable_ones_are_there_after_a_restart(
    broker: RunningBroker, start_broker: StartBroker, tmp_path: Path
) -> None:
    controller = Controller(f"127.0.0.1:{broker.port}")
    sender = controller.sender("kept")
    kept, undone = controller.declare(), controller.declare()
    kept.send(sender, Message(body="kept", durable=True))
    undone.send(sender, Message(body="undone", durable=True))
    controller.run(0.1)
    controller.commit(kept)
    args = ("--data", str(tmp_path / "broker0" / "data"))
    broker.stop()
    again = start_broker("", POLICIES, args)
    assert number_of(again, "kept", "depth_msgs") == 1


def test_the_relay_takes_part(broker: RunningBroker, controller: Controller) -> None:
    broker_queue = controller.receiver("orders")
    relay = controller.sender(None, options=AnonymousTarget())
    transaction = controller.declare()
    transaction.send(relay, Message(body="a", address="orders"))
    controller.run(0.1)
    assert number_of(broker, "orders", "uncommitted_msgs") == 1
    controller.commit(transaction)
    assert body_of(controller.take(broker_queue, 1)[0][1]) == "a"


class AnonymousTarget(LinkOption):
    """A sender to no address."""

    def apply(self, link: Any) -> None:
        link.target.address = None


def test_the_brokers_figures(broker: RunningBroker, controller: Controller) -> None:
    controller.commit(controller.declare())
    controller.abort(controller.declare())
    sender = controller.sender("orders")
    controller.declare().send(sender, Message(body="in time"))
    controller.run(0.1)

    def figures() -> list[object]:
        told = broker_attributes(broker)
        return [told[f"{name}_transactions"] for name in ("open", "committed", "rolled_back", "timed_out")]

    assert figures()[:3] == [1, 1, 1]
    wait_until(lambda: figures() == [0, 1, 2, 1], 5, "the last to run out of time")


def broker_attributes(broker: RunningBroker) -> dict[str, object]:
    with Management(broker.url) as management:
        body = management.call("READ", "org.sluice.broker", "broker").body
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize("commits", [True, False])
def test_a_discharge_waits_for_a_large_message_before_it(controller: Controller, commits: bool) -> None:
    """One that is settled would end its link if its transaction were over when it is in its file."""
    sender = controller.sender("large", options=AtMostOnce())
    for _ in range(3):
        transaction = controller.declare()
        transaction.send(sender, Message(bytes(5_000_000)))
        if commits:
            controller.commit(transaction)
        else:
            controller.abort(transaction)
    sender.send(Message("after"))
    controller.run(0.1)
    got = controller.take(controller.receiver("large"), 4 if commits else 1)
    assert got[-1][1].body == "after"
