"""A connection goes to the cell of its first link, with its socket, and its client doesn't notice."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, LinkDetached

from tests.wire.cells import (
    ARGS,
    CELLS,
    POLICIES,
    Flood,
    cells,
    depths,
    kill_cell,
    names_in,
    pids_of,
    wait_for_cell,
)
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    DISPOSITION,
    FLOW,
    OPEN,
    SENDER,
    SOURCE,
    TARGET,
    Described,
    RawPeer,
    Symbols,
    UByte,
    performative,
    transfer,
)
from tests.wire.people import PASSWORDS, settings_for

__all__ = ["cells"]


def test_twenty_queues_are_reached_from_one_address(cells: RunningBroker) -> None:
    names = [f"twenty.{number}" for number in range(20)]
    for name in names:
        connection = BlockingConnection(cells.url, timeout=10)
        connection.create_sender(name).send(Message(f"for {name}"))
        connection.close()
    found = [depths(cells, cell) for cell in range(CELLS)]
    for cell in range(CELLS):
        mine = {name for name in found[cell] if name.startswith("twenty.")}
        assert mine
        assert mine <= set(names_in(cell, CELLS, 20, "twenty"))
    for name in names:
        connection = BlockingConnection(cells.url, timeout=10)
        receiver = connection.create_receiver(name)
        assert receiver.receive(timeout=10).body == f"for {name}"
        receiver.accept()
        connection.close()


class Hurried(MessagingHandler):
    """Says open, begin and attach at once, sends what it may, and closes once all is accepted."""

    def __init__(self, url: str, name: str, count: int) -> None:
        super().__init__()
        self.url, self.name, self.count = url, name, count
        self.sent = self.accepted = 0

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, reconnect=False)
        event.container.create_sender(self.connection, self.name)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit > 0 and self.sent < self.count:
            event.sender.send(Message(self.sent))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == self.count:
            self.connection.close()


@pytest.mark.parametrize("cell", range(CELLS))
def test_a_client_that_waits_for_no_answer_is_handed_over_too(cells: RunningBroker, cell: int) -> None:
    [name] = names_in(cell, CELLS, 1, "hurried")
    for _ in range(4):
        client = Hurried(cells.url, name, 50)
        Container(client).run()
        assert client.accepted == 50
    assert depths(cells, cell)[name] == 200


@pytest.mark.parametrize("cell", range(CELLS))
@pytest.mark.parametrize("pauses", [0, 1, 2])
def test_nothing_is_said_twice_and_nothing_is_left_out(cells: RunningBroker, cell: int, pauses: int) -> None:
    """``pauses``: how often the client waits for an answer before it says more."""
    [name] = names_in(cell, CELLS, 1, "said")
    termini = (Described(SOURCE), Described(TARGET, [name]))
    said = [
        performative(OPEN, "raw", None, 65_536, 100, None),
        performative(BEGIN, None, 0, 10_000, 10_000, 1000),
        performative(ATTACH, "out", 0, SENDER, UByte(2), UByte(0), *termini, None, None, 0),
    ]
    # Whoever accepts it: one of three is the cell where it belongs.
    for _ in range(6):
        peer = RawPeer(cells.port).authenticate()
        if pauses == 0:
            peer.send(b"".join(said))
        for number, code in enumerate((OPEN, BEGIN, ATTACH)):
            if pauses == 2 or (pauses == 1 and number == 0):
                peer.send(said[number])
            elif pauses == 1 and number == 1:
                peer.send(said[1] + said[2])
            if number == 0:
                assert peer.read_bytes(8) == AMQP_HEADER
            answer = peer.expect(code)
        assert answer.field(6) is not None
        peer._handles[0] = answer.field(1)
        assert peer.await_credit() > 0
        peer.send(transfer(0))
        peer.expect(DISPOSITION)
        codes = [each.code for each in peer.log if each.code != FLOW]
        assert codes[-4:] == [OPEN, BEGIN, ATTACH, DISPOSITION]
        assert not {OPEN, BEGIN, ATTACH} & set(codes[:-4])
        peer.close()
    assert depths(cells, cell)[name] >= 6


def test_a_client_that_is_kept_alive_before_it_attaches_is_handed_over(cells: RunningBroker) -> None:
    for cell in range(CELLS):
        [name] = names_in(cell, CELLS, 1, "slow")
        peer = RawPeer(cells.port).open(idle_ms=200)
        peer.begin()
        deadline = time.monotonic() + 10
        while peer.empty_frames < 2:
            assert time.monotonic() < deadline
            peer._read_frame(time.monotonic() + 0.2)
            peer.send(bytes.fromhex("0000000802000000"))
        peer.attach_sender(name)
        assert peer.await_credit() > 0
        peer.close()


def test_the_user_goes_along_and_the_rules_hold(start_broker: StartBroker, tmp_path: Path) -> None:
    config = settings_for(tmp_path / "secured", more="  plain_without_tls: true\n")
    broker = start_broker(config, args=ARGS)
    password = PASSWORDS["otto"].replace(":", "%3A").replace(" ", "%20")
    for cell in range(CELLS):
        [allowed], [denied] = names_in(cell, CELLS, 1, "orders"), names_in(cell, CELLS, 1, "prices")
        for _ in range(3):
            connection = BlockingConnection(f"amqp://otto:{password}@127.0.0.1:{broker.port}", timeout=10)
            connection.create_sender(allowed).send(Message("mine"))
            connection.close()
            connection = BlockingConnection(f"amqp://otto:{password}@127.0.0.1:{broker.port}", timeout=10)
            with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
                connection.create_sender(denied)
            connection.close()
    assert "it goes on in cell" in broker.log
    assert not re.search(r"user (?!otto)\S+ by", broker.log)


@pytest.mark.parametrize("cell", range(CELLS))
def test_a_threshold_is_held_to_the_message(cells: RunningBroker, cell: int) -> None:
    [name] = names_in(cell, CELLS, 1, "bounded")
    flood = Flood(cells.url, name, 8)
    container = Container(flood)
    container.timeout = 0.05
    container.start()
    deadline = time.monotonic() + 10
    while flood.accepted < 40 and time.monotonic() < deadline:
        container.process()
    for _ in range(20):
        container.process()
    # What was sent on credit that went back waits outside the queue.
    assert flood.accepted == 40
    assert depths(cells, cell)[name] == 40
    flood.end(container)


def test_a_killed_cell_comes_back_with_its_messages_and_no_neighbour_notices(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(policies=POLICIES, args=ARGS)
    queues = {cell: names_in(cell, CELLS, 1, "kept")[0] for cell in range(CELLS)}
    connections = {cell: BlockingConnection(broker.url, timeout=20) for cell in range(CELLS)}
    senders = {cell: connections[cell].create_sender(queues[cell]) for cell in range(CELLS)}
    for cell in range(CELLS):
        senders[cell].send(Message("before", durable=True))
    old = kill_cell(broker, 1)
    for cell in (0, 2):
        senders[cell].send(Message("meanwhile", durable=True))
    # A client that comes while its cell is away is given it as soon as it is back.
    late = BlockingConnection(broker.url, timeout=20)
    receiver = late.create_receiver(queues[1])
    assert receiver.receive(timeout=20).body == "before"
    wait_for_cell(broker, 1, old)
    for cell in (0, 2):
        senders[cell].send(Message("afterwards", durable=True))
        connections[cell].close()
        assert depths(broker, cell)[queues[cell]] == 3
    late.close()


def test_messages_survive_a_restart_of_all(start_broker: StartBroker, tmp_path: Path) -> None:
    args = (*ARGS, "--data", str(tmp_path / "data"))
    names = [f"kept.{number}" for number in range(12)]
    broker = start_broker(policies=POLICIES, args=args)
    for name in names:
        connection = BlockingConnection(broker.url, timeout=20)
        connection.create_sender(name).send(Message(name, durable=True))
        connection.close()
    broker.stop()
    again = start_broker(policies=POLICIES, args=args)
    for name in names:
        connection = BlockingConnection(again.url, timeout=20)
        assert connection.create_receiver(name).receive(timeout=10).body == name
        connection.close()


def test_a_cell_that_stands_still_costs_its_clients_a_bounded_time(start_broker: StartBroker) -> None:
    broker = start_broker(args=("--cells", "2"))
    [name] = names_in(1, 2, 1)
    pid = pids_of(broker)[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        peer = RawPeer(broker.port).open().begin()
        with pytest.raises(AssertionError):
            peer.attach_sender(name)
        peer.await_end(20)
        peer.close()
        assert time.monotonic() - began < 20
        # The other cell goes on meanwhile.
        [other] = names_in(0, 2, 1)
        connection = BlockingConnection(broker.url, timeout=10)
        connection.create_sender(other).send(Message("on"))
        connection.close()
    finally:
        os.kill(pid, signal.SIGCONT)
    # What it was asked for meanwhile it lets go.
    connection = BlockingConnection(broker.url, timeout=20)
    connection.create_sender(name).send(Message("again"))
    connection.close()
    wait_until(lambda: depths(broker, 1)[name] == 1, 10, "one message")


def test_a_connection_that_another_cell_would_answer_otherwise_stays(start_broker: StartBroker) -> None:
    """Cell 1 has a connection that has its container-id to itself, and would refuse another one."""
    broker = start_broker(args=("--cells", "2"))
    [name] = names_in(1, 2, 1)

    def opened(desired: Symbols | None) -> RawPeer | None:
        peer = RawPeer(broker.port).authenticate()
        peer.send(performative(OPEN, "mine", None, 65_536, 100, None, None, None, None, desired))
        assert peer.read_bytes(8) == AMQP_HEADER
        peer.expect(OPEN)
        peer.send(performative(BEGIN, None, 0, 10_000, 10_000, 1000))
        try:
            peer.expect(BEGIN, 2)
            peer.attach_sender(name)
        except AssertionError:
            peer.close()  # cell 1 itself has accepted it
            return None
        return peer

    alone = Symbols(("sole-connection-for-container",))
    holder = opened(alone)
    assert holder is not None
    text = "what another cell has answered isn't what this one would"
    for _ in range(40):
        other = opened(alone)
        if text in broker.log:
            break
        if other is not None:
            other.close()
    assert text in broker.log
    # Its link is passed on, and nothing was said to it twice.
    assert other is not None
    codes = [each.code for each in other.log if each.code in (OPEN, BEGIN, ATTACH)]
    assert codes == [OPEN, BEGIN, ATTACH]
    assert other.await_credit() > 0
    other.send(transfer(0))
    other.expect(DISPOSITION)
    wait_until(lambda: depths(broker, 1)[name] == 1, 10, "one message")
    other.close()
    holder.close()
