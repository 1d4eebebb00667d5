"""Queues that go from one cell to another while both serve."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from proton import ConnectionException, Message, Timeout, symbol
from proton.utils import BlockingConnection

from broker.client.request import Management
from broker.codec.owned import owned
from broker.errors import NotFoundError, OperatorError
from tests.wire.cells import names_in
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.frames import CLOSE, RawPeer, Symbol

CELLS = 3
ARGS = ("--cells", str(CELLS))
QUEUE = "org.sluice.queue"
BROKER = "org.sluice.broker"
POLICIES = 'policies:\n  - {match: "orders.>", durable: true}\n'


def connect(broker: RunningBroker) -> BlockingConnection:
    return BlockingConnection(broker.url, timeout=20)


def send(broker: RunningBroker, name: str, *bodies: Any, durable: bool = True, **more: Any) -> None:
    connection = connect(broker)
    sender = connection.create_sender(name)
    for body in bodies:
        sender.send(Message(body, durable=durable, **more))
    connection.close()


def drained(broker: RunningBroker, name: str, count: int) -> list[Message]:
    """Receive and accept so many messages, and see that there are no more."""
    connection = connect(broker)
    receiver = connection.create_receiver(name, credit=count + 1)
    found = []
    for _ in range(count):
        message = receiver.receive(timeout=20)
        message.body = owned(message.body)
        found.append(message)
        receiver.accept()
    with pytest.raises(Exception, match="timed out"):
        receiver.receive(timeout=0.3)
    connection.close()
    return found


def bodies(broker: RunningBroker, name: str, count: int) -> list[object]:
    return [each.body for each in drained(broker, name, count)]


def say(connection: BlockingConnection) -> None:
    """Write what a client has said last; the broker may close the connection meanwhile."""
    with suppress(Timeout, ConnectionException):
        connection.wait(lambda: False, timeout=0.1)


def end(connection: BlockingConnection) -> None:
    """Close a connection that the broker has cut off."""
    say(connection)
    with suppress(ConnectionException):
        connection.close()


def move(broker: RunningBroker, name: str, cell: int, *more: str) -> str:
    done = run_sluice("cluster", "move", name, str(cell), "-b", broker.url, *more)
    assert done.returncode == 0, done.stderr + broker.log
    return done.stdout


def refusal(broker: RunningBroker, name: str, cell: int) -> str:
    done = run_sluice("cluster", "move", name, str(cell), "-b", broker.url)
    assert done.returncode == 1, done.stdout
    return done.stderr


def cells_with(broker: RunningBroker, name: str, cells: int = CELLS) -> list[int]:
    found = []
    for cell in range(cells):
        with Management(broker.url, cell=cell) as management, suppress(NotFoundError):
            management.call("READ", QUEUE, name)
            found.append(cell)
    return found


@pytest.fixture
def cells(start_broker: StartBroker) -> RunningBroker:
    return start_broker(policies=POLICIES, args=ARGS)


def test_a_queue_is_in_the_other_cell_with_its_messages_in_order(cells: RunningBroker) -> None:
    [name] = names_in(0, CELLS, 1)
    send(cells, name, *range(5000))
    assert f"{name} is in cell 2 with 5,000 messages" in move(cells, name, 2)
    assert cells_with(cells, name) == [2]
    send(cells, name, 5000)
    assert bodies(cells, name, 5001) == list(range(5001))
    # And back again, empty.
    assert "is in cell 0 with 0 messages" in move(cells, name, 0)
    send(cells, name, 1)
    assert bodies(cells, name, 1) == [1]


def test_it_is_there_after_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES, args=ARGS)
    [name] = names_in(0, CELLS, 1)
    send(broker, name, *range(100))
    move(broker, name, 1)
    data = str(broker.config_file.parent / "data")
    broker.stop()
    broker = start_broker(policies=POLICIES, args=(*ARGS, "--data", data))
    assert cells_with(broker, name) == [1]
    assert bodies(broker, name, 100) == list(range(100))


def test_all_that_the_queue_knows_of_a_message_goes_along(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies='policies:\n  - {match: "orders.>", durable: true, duplicate_window: 100,'
        " priority: strict}\n",
        args=ARGS,
    )
    [name] = names_in(0, CELLS, 1)
    send(broker, name, "low", id="a", priority=1)
    send(broker, name, "high", id="b", priority=8, ttl=3600)
    send(broker, name, "gone", id="c", priority=4, ttl=1.5)
    send(broker, name, "kept in memory", durable=False, id="d", priority=2)
    later = {symbol("x-opt-delivery-delay"): 4000}
    send(broker, name, "delayed", id="e", annotations=later)
    connection = connect(broker)
    receiver = connection.create_receiver(name, credit=1)
    assert receiver.receive(timeout=10).body == "high"
    assert receiver.fetcher is not None
    [unsettled] = receiver.fetcher.unsettled
    unsettled.local.failed = True
    unsettled.local.annotations = {symbol("x-opt-seen"): True}
    receiver.release()
    connection.close()
    began = time.monotonic()
    move(broker, name, 1)
    # Resent ones are known.
    send(broker, name, "again", id="a")
    wait_until(lambda: time.monotonic() - began > 2, 5, "one to expire")
    first, *others = drained(broker, name, 4)
    assert (first.body, first.priority, first.delivery_count) == ("high", 8, 1)
    assert first.annotations == {"x-opt-seen": True}
    assert [each.body for each in others] == ["kept in memory", "low", "delayed"]
    assert [each.durable for each in others] == [False, True, True]
    assert time.monotonic() - began > 2.5


def test_messages_on_disk_only_go_along(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies='policies:\n  - {match: "orders.>", durable: true, overflow: page, memory_limit: 1 MB,'
        " max_size: 0}\n",
        args=ARGS,
    )
    [name] = names_in(0, CELLS, 1)
    padding = "x" * 5000
    send(broker, name, *(f"{number} {padding}" for number in range(1500)))
    assert "1,500 messages" in move(broker, name, 1)
    found = [int(str(each).split()[0]) for each in bodies(broker, name, 1500)]
    assert found == list(range(1500))


def test_what_a_consumer_holds_is_waited_for(cells: RunningBroker) -> None:
    [name] = names_in(0, CELLS, 1)
    send(cells, name, 1, 2, 3)
    connection = connect(cells)
    receiver = connection.create_receiver(name)
    receiver.receive(timeout=10)
    mover = threading.Thread(target=lambda: move(cells, name, 1))
    mover.start()
    cells.wait_for_log(f"'{name}' goes to cell 1")
    time.sleep(0.5)
    assert cells_with(cells, name) == [0]
    receiver.accept()
    say(connection)
    mover.join(30)
    assert bodies(cells, name, 2) == [2, 3]
    # Its link was there.
    cells.wait_for_log(f"amqp:connection:forced: '{name}' goes to another cell")
    end(connection)


@pytest.mark.parametrize("is_passed_on", [False, True])
def test_a_client_that_says_what_it_is_is_told_to_come_back(cells: RunningBroker, is_passed_on: bool) -> None:
    [name], [first] = names_in(0, CELLS, 1), names_in(1, CELLS, 1, "first")
    peer = RawPeer(cells.port).open(properties={Symbol("product"): "raw"}).begin()
    if is_passed_on:
        peer.attach_sender(first, "first", handle=1)
    peer.attach_sender(name, "second", handle=0)
    move(cells, name, 2)
    closed = peer.expect(CLOSE, 10)
    assert closed.condition == "amqp:connection:forced"
    assert f"'{name}' goes to another cell" in str(closed.error)
    peer.close()


def test_what_a_consumer_goes_on_holding_comes_again_flagged(cells: RunningBroker) -> None:
    [name] = names_in(0, CELLS, 1)
    send(cells, name, 1, 2)
    connection = connect(cells)
    receiver = connection.create_receiver(name)
    assert receiver.receive(timeout=10).body == 1
    move(cells, name, 1, "--wait", "0")
    found = drained(cells, name, 2)
    assert [each.body for each in found] == [1, 2]
    assert [each.delivery_count > 0 for each in found] == [True, False]


def test_operators_holds_and_thresholds_go_along(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies='policies:\n  - {match: "orders.>", durable: true, flow_stop_count: 10}\n', args=ARGS
    )
    [name] = names_in(0, CELLS, 1)
    send(broker, name, *range(10))
    move(broker, name, 2)
    connection = connect(broker)
    sender = connection.create_sender(name)
    with pytest.raises(Exception, match="timed out"):
        sender.send(Message(10, durable=True), timeout=1)
    with Management(broker.url, cell=2) as management:
        row = management.call("READ", QUEUE, name).body
        assert (row["flowStopped"], row["depth_msgs"]) == (True, 10)  # type: ignore[index]


def test_relayed_and_temporary_names_find_it(cells: RunningBroker) -> None:
    [name] = names_in(0, CELLS, 1)
    connection = connect(cells)
    relay = connection.create_sender(None)
    relay.send(Message(1, durable=True, address=name))
    move(cells, name, 2)
    relay.send(Message(2, durable=True, address=name))
    assert bodies(cells, name, 2) == [1, 2]
    connection.close()


def test_what_can_not_be_moved_is_refused_with_its_reason_and_goes_on(start_broker: StartBroker) -> None:
    broker = start_broker(
        policies='policies:\n  - {match: "ticks.>", kind: stream}\n  - {match: "news.>", kind: topic}\n'
        "  - {match: 'big.>', durable: true}\n",
        args=ARGS,
    )
    [stream] = names_in(0, CELLS, 1, "ticks")
    [topic] = names_in(0, CELLS, 1, "news")
    [queue] = names_in(0, CELLS, 1)
    send(broker, stream, 1)
    connection = connect(broker)
    subscriber = connection.create_receiver(topic, credit=1)
    send(broker, queue, 1)
    assert "it is a stream" in refusal(broker, stream, 1)
    assert "a topic with subscriptions" in refusal(broker, topic, 1)
    assert "is in cell 0" in refusal(broker, queue, 0)
    assert "there is no cell 3" in refusal(broker, queue, 3)
    assert "no queue, topic or subscription" in refusal(broker, "nobody", 1)
    send(broker, topic, "told")
    assert subscriber.receive(timeout=10).body == "told"
    assert bodies(broker, queue, 1) == [1]
    connection.close()


def test_a_node_of_its_own_name_in_the_other_cell_is_kept(cells: RunningBroker) -> None:
    """Dead letters stay in the cell of the queue that they come from, and so does their node."""
    for cell in range(CELLS):
        [name] = names_in(cell, CELLS, 1)
        send(cells, name, cell)
        connection = connect(cells)
        receiver = connection.create_receiver(name, credit=1)
        receiver.receive(timeout=10)
        receiver.reject()
        connection.close()
    wait_until(lambda: cells_with(cells, "DLQ") == [0, 1, 2], 10, "dead letters in each cell")
    assert "of its own, with dead letters" in refusal(cells, "DLQ", 0) + refusal(cells, "DLQ", 1)
    found = sorted(bodies(cells, f"$cell/{cell}/DLQ", 1)[0] for cell in range(CELLS))  # type: ignore[type-var]
    assert found == [0, 1, 2]


def test_while_it_is_moved_nobody_changes_it(cells: RunningBroker) -> None:
    [name] = names_in(0, CELLS, 1)
    send(cells, name, 1, 2)
    connection = connect(cells)
    receiver = connection.create_receiver(name)
    receiver.receive(timeout=10)
    mover = threading.Thread(target=lambda: move(cells, name, 1))
    mover.start()
    cells.wait_for_log(f"'{name}' goes to cell 1")
    with Management(cells.url) as management:
        for operation, body in (("purge", {"name": name}), ("move-node", {"name": name, "cell": 2})):
            with pytest.raises(OperatorError, match="being moved"):
                management.call(operation, BROKER, body=body)
        with pytest.raises(OperatorError, match="being moved"):
            management.call("DELETE", QUEUE, name)
        told = management.call("why", BROKER, body={"address": name}).body
        assert "It is being moved to cell 1, and stands still" in str(told)
        management.call("stop-producers", BROKER, body={"target": name})
        management.call("start-producers", BROKER, body={"target": name})
    receiver.accept()
    say(connection)
    mover.join(30)
    assert bodies(cells, name, 1) == [2]
    end(connection)
