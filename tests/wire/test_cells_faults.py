"""Links that are passed on to other cells, where the owner refuses, a cell dies or a client misbehaves."""

from __future__ import annotations

import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.reactor import Selector
from proton.utils import BlockingConnection, BlockingSender, LinkDetached

from broker.client.request import Management
from tests.wire.cells import (
    ARGS,
    CELLS,
    POLICIES,
    cells,
    depths,
    kill_cell,
    names_in,
    pids_of,
    settled_in,
    wait_for_cell,
)
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    BODY,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    RECEIVER,
    TRANSFER,
    Described,
    RawPeer,
    performative,
)
from tests.wire.frames import transfer as transferred

__all__ = ["cells"]


def test_a_refusal_is_the_owner_s(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "refusing")
    with settled_in(cells, 0) as connection:
        with pytest.raises(LinkDetached, match=r"amqp:not-found.*auto_create is false"):
            connection.create_sender(name)
        with pytest.raises(LinkDetached, match=r"amqp:invalid-field.*selector"):
            connection.create_receiver(names_in(2, CELLS, 1)[0], options=Selector("(("))
        # The connection is none the worse.
        connection.create_sender(names_in(1, CELLS, 1)[0]).send(Message("x"))


def test_a_node_that_is_deleted_detaches_its_links_everywhere(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "deleted")
    with settled_in(cells, 0) as connection:
        receiver = connection.create_receiver(name, credit=1)
        with Management(cells.url, cell=2) as management:
            management.call("DELETE", "org.sluice.queue", name)
        with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
            receiver.receive(timeout=10)


def test_wildcard_subscriptions_are_refused(cells: RunningBroker) -> None:
    connection = BlockingConnection(cells.url, timeout=10)
    with pytest.raises(LinkDetached, match=r"amqp:not-implemented.*stands for many topics"):
        connection.create_receiver("news.*")
    connection.close()


def test_a_node_of_another_cell_is_reached_by_its_cell(cells: RunningBroker) -> None:
    connection = BlockingConnection(cells.url, timeout=10)
    [name] = names_in(1, CELLS, 1, "explicit")
    connection.create_sender(f"$cell/1/{name}").send(Message("x"))
    with pytest.raises(LinkDetached, match=r"amqp:not-found.*from 0 to 2"):
        connection.create_sender("$cell/3/x")
    with pytest.raises(LinkDetached, match="belongs to cell 1"):
        connection.create_sender(f"$cell/2/{names_in(1, CELLS, 2, 'explicit')[1]}")
    connection.close()
    assert depths(cells, 1)[name] == 1


def _send_until_it_fails(sender: BlockingSender) -> None:
    for _ in range(1000):
        sender.send(Message("after", durable=True), timeout=5)


def test_a_killed_cell_ends_the_connections_with_links_to_it_and_no_others(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES, args=ARGS)
    queues = {cell: names_in(cell, CELLS, 1, "kept")[0] for cell in range(CELLS)}
    with settled_in(broker, 0) as touched, settled_in(broker, 0) as untouched:
        sender = touched.create_sender(queues[1])
        sender.send(Message("before", durable=True))
        other = untouched.create_sender(queues[2])
        old = kill_cell(broker, 1)
        # Cut off, since it says nothing of itself; or closed, where its socket was full.
        with pytest.raises((ConnectionException, LinkDetached)):
            _send_until_it_fails(sender)
        other.send(Message("on", durable=True))
        wait_for_cell(broker, 1, old)
        other.send(Message("on", durable=True))
    with settled_in(broker, 0) as again:
        assert again.create_receiver(queues[1], credit=1).receive(timeout=10).body == "before"
    assert sorted(pids_of(broker)) == [0, 1, 2]


def test_a_reader_that_stands_still_holds_up_nobody_else(cells: RunningBroker) -> None:
    [name], [other] = names_in(1, CELLS, 1, "still"), names_in(1, CELLS, 1, "moving")
    body = bytes(100_000)
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(name)
        for _ in range(100):
            sender.send(Message(body), timeout=20)
    [first] = names_in(0, CELLS, 1, "first")
    still = RawPeer(cells.port).open().begin(window=5)
    still.attach_sender(first, handle=0)
    still.attach_receiver(name, handle=1)
    still.give_credit(100)
    with settled_in(cells, 0) as connection:
        sender = connection.create_sender(other)
        receiver = connection.create_receiver(other, credit=10)
        for number in range(100):
            sender.send(Message(number))
            assert receiver.receive(timeout=10).body == number
            receiver.accept()
    still.close()
    wait_until(lambda: depths(cells, 1)[name] == 100, 10, "all of them again")


def test_what_a_client_sends_before_it_closes_arrives(cells: RunningBroker) -> None:
    [first] = names_in(0, CELLS, 1, "first")
    for settled in (True, False):
        [name] = names_in(1, CELLS, 1, f"closed{settled}")
        peer = RawPeer(cells.port).open().begin()
        peer.attach_sender(first, name="first", handle=1)
        peer.attach_sender(name, name="second", handle=0, mode=1 if settled else 0)
        assert peer.await_credit(0) >= 50
        sent = [transferred(number, handle=0, settled=settled) for number in range(50)]
        peer.send(b"".join(sent) + performative(0x18))
        peer.expect(0x18)
        peer.close()
        wait_until(lambda name=name: depths(cells, 1)[name] == 50, 10, "50 messages")  # type: ignore[misc]


def _misbehave(broker: RunningBroker, draw: random.Random) -> None:
    """Attach links to several cells, send and receive at random, and go away in some way or other."""
    peer = RawPeer(broker.port)
    try:
        peer.open().begin(window=draw.choice([1, 5, 1000]))
        for handle in range(draw.randint(1, 6)):
            name = f"wild.{draw.randrange(6)}"
            if draw.random() < 0.5:
                peer.attach_sender(name, f"out{handle}", handle, mode=draw.choice([0, 1, 2]))
                for number in range(draw.randint(0, 20)):
                    peer.send(
                        transferred(
                            1000 * handle + number,
                            BODY + bytes(draw.choice([0, 0, 70_000])),
                            handle=handle,
                            settled=draw.random() < 0.5,
                            more=draw.random() < 0.1,
                        )
                    )
            else:
                peer.attach_receiver(name, f"in{handle}", handle, mode=draw.choice([0, 1]))
                credit, drain = draw.randint(1, 30), draw.random() < 0.3
                peer.give_credit(credit, handle, drain=drain, echo=draw.random() < 0.3)
                if draw.random() < 0.5:
                    state = Described(draw.choice([0x24, 0x25, 0x26, 0x27]))
                    peer.send(performative(DISPOSITION, RECEIVER, 0, draw.randint(0, 20), True, state))
                if draw.random() < 0.3:
                    peer.send(performative(FLOW, 0, 10_000, 0, 10_000, handle, 0, 0))
            if draw.random() < 0.3:
                peer.send(performative(0x16, handle, draw.random() < 0.5))
        if draw.random() < 0.3:
            peer.send(performative(0x17))
        if draw.random() < 0.3:
            peer.send(performative(0x18))
    except (AssertionError, OSError):
        pass  # the broker has ended what breaks the protocol
    finally:
        peer.close()


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_clients_that_go_away_anyhow_do_no_harm(cells: RunningBroker) -> None:
    before = pids_of(cells)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: _misbehave(cells, random.Random(seed)), range(60)))
    assert pids_of(cells) == before
    # The first clients have everything loaded that opens files of its own.
    opened = sum(_descriptors(pid) for pid in before.values())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: _misbehave(cells, random.Random(seed)), range(60, 90)))
    wait_until(lambda: sum(map(_descriptors, before.values())) <= opened + 3, 20, "sockets to be closed")
    assert pids_of(cells) == before
    for cell in range(CELLS):
        with Management(cells.url, cell=cell) as management:
            audit: Any = management.call("audit", "org.sluice.broker").body
            assert not any(audit["breaches"]), audit
    with settled_in(cells, 0) as connection:
        connection.create_sender(names_in(1, CELLS, 1, "sound")[0]).send(Message("x"))


def test_a_client_that_ends_behind_a_transaction_meets_no_fault(start_broker: StartBroker) -> None:
    """Messages that waited for room are passed on at the end, up to the transfer that can't be."""
    broker = start_broker(policies=POLICIES, args=ARGS)
    [first], [name] = names_in(0, CELLS, 1, "first"), names_in(1, CELLS, 1, "behind")
    peer = RawPeer(broker.port).open().begin()
    peer.attach_sender(first, name="first", handle=1)
    peer.attach_sender(name, name="second", handle=0)
    assert peer.await_credit(0) >= 36
    pid = pids_of(broker)[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        # More than a session to another cell may have unsent (1 MB).
        body = b"\x00\x53\x75\xb0\x00\x00\xea\x60" + bytes(60_000)
        for number in range(35):
            peer.send(transferred(number, body))
        state = Described(0x34, [b"none"])
        peer.send(performative(TRANSFER, 0, 35, b"t", 0, False, False, None, state, payload=BODY))
        peer.send(performative(CLOSE))
        peer.expect(CLOSE)
    finally:
        os.kill(pid, signal.SIGCONT)
    peer.close()
    wait_until(lambda: depths(broker, 1)[name] == 35, 10, "the messages before it")


def test_a_failed_link_is_told_once_and_others_go_on(cells: RunningBroker) -> None:
    [first], [name, other] = names_in(0, CELLS, 1, "first"), names_in(1, CELLS, 2, "failed")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, name="first", handle=2)
    peer.attach_sender(other, name="other", handle=1)
    peer.attach_sender(name, name="failing", handle=0)
    assert peer.await_credit(0) > 0
    state = Described(0x34, [b"none"])
    in_transaction = [
        performative(TRANSFER, 0, number, bytes([number]), 0, True, False, None, state, payload=BODY)
        for number in range(3)
    ]
    peer.send(b"".join(in_transaction))
    assert peer.expect(DETACH).condition == "amqp:transaction:unknown-id"
    peer.send(performative(DETACH, 0, True), transferred(3, handle=1))
    peer.expect(DISPOSITION)
    assert len([each for each in peer.log if each.code == DETACH]) == 1
    # Its name is free again, here and at the owner.
    peer.attach_sender(name, name="failing", handle=3)
    assert peer.await_credit(3) > 0
    peer.send(transferred(4, handle=3))
    peer.expect(DISPOSITION)
    peer.close()
    wait_until(lambda: depths(cells, 1)[name] == depths(cells, 1)[other] == 1, 10, "one message each")


def test_a_session_that_ends_takes_its_links_and_no_others(cells: RunningBroker) -> None:
    [first], [name, other] = names_in(0, CELLS, 1, "first"), names_in(1, CELLS, 2, "sessions")
    peer = RawPeer(cells.port).open().begin()
    peer.attach_sender(first, name="first", handle=1)
    peer.attach_sender(other, name="stays", handle=0)
    peer.begin(channel=1)
    peer.attach_sender(name, name="goes", handle=0, channel=1)
    assert peer.await_credit(0) > 0
    sent = [transferred(number, handle=0, settled=True, channel=1) for number in range(20)]
    peer.send(b"".join(sent), performative(END, channel=1))
    peer.expect(END)
    wait_until(lambda: depths(cells, 1)[name] == 20, 10, "all that came before the end")
    # Nothing ends by the answer of the other cell, and the channel is there for another session.
    for number in range(3):
        peer.send(transferred(number, handle=0))
        peer.expect(DISPOSITION)
        peer.begin(channel=1)
        peer.attach_sender(name, name="goes", handle=0, channel=1)
        peer.send(performative(END, channel=1))
        peer.expect(END)
        wait_until(lambda: depths(cells, 1)[other] == number + 1, 10, "a message")  # noqa: B023
    peer.close()
