"""A cell that stands still: clients wait for it as long as is said, others go on, it is started again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.wire.cells import ARGS, CELLS, depths, names_in, pids_of, wait_for_cell
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    ATTACH,
    CLOSE,
    DISPOSITION,
    SENDER,
    SOURCE,
    TARGET,
    Described,
    RawPeer,
    Symbol,
    UByte,
    performative,
    transfer,
)

# One that says nothing of itself may be Proton for Python, which is cut off instead of closed.
PRODUCT: dict[Symbol, object] = {Symbol("product"): "raw"}


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Have processes stand still, whatever becomes of them."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def asking(broker: RunningBroker, name: str) -> RawPeer:
    """Return a client that has asked for a link to send on, and waits for the answer."""
    peer = RawPeer(broker.port).open(properties=PRODUCT).begin()
    termini = (Described(SOURCE), Described(TARGET, [name]))
    peer.send(performative(ATTACH, "out", 0, SENDER, UByte(2), UByte(0), *termini, None, None, 0))
    return peer


def test_many_clients_wait_for_a_silent_cell_no_longer_than_one(start_broker: StartBroker) -> None:
    broker = start_broker(args=ARGS)
    [name], [other] = names_in(1, CELLS, 1), names_in(2, CELLS, 1)
    with stopped(pids_of(broker)[1]):
        began = time.monotonic()
        peers = [asking(broker, name) for _ in range(16)]
        # Clients of the other cells are handed over at once.
        while "it goes on in cell 2" not in broker.log:
            connection = BlockingConnection(broker.url, timeout=5)
            connection.create_sender(other).send(Message("on"))
            connection.close()
            assert time.monotonic() - began < 8
        for peer in peers:
            closed = peer.expect(CLOSE, 15)
            assert closed.condition == "amqp:connection:forced"
            assert "cell 1, which has the node of this connection's first link, doesn't answer" in str(
                closed.error
            )
        assert 9 < time.monotonic() - began < 14
        for peer in peers:
            peer.send(performative(CLOSE))
            peer.await_end(5)
            peer.close()
    # It lets go what it was asked for meanwhile, and serves.
    again = asking(broker, name)
    again.expect(ATTACH)
    again._handles[0] = 0
    assert again.await_credit() > 0
    again.send(transfer(0))
    again.expect(DISPOSITION)
    again.close()
    wait_until(lambda: depths(broker, 1)[name] == 1, 10, "one message")
    assert broker.log.count("doesn't answer, and its connection is closed") == 16


def test_a_link_to_a_silent_cell_ends_with_its_connection(start_broker: StartBroker) -> None:
    broker = start_broker(args=ARGS)
    [first], [name, late] = names_in(0, CELLS, 1, "first"), names_in(1, CELLS, 2)
    attached, asked, untouched = (RawPeer(broker.port).open(properties=PRODUCT).begin() for _ in range(3))
    for peer in (attached, asked, untouched):
        peer.attach_sender(first, "first", handle=1)
    attached.attach_sender(name, "second", handle=0)
    with stopped(pids_of(broker)[1]):
        began = time.monotonic()
        termini = (Described(SOURCE), Described(TARGET, [late]))
        asked.send(performative(ATTACH, "out", 0, SENDER, UByte(2), UByte(0), *termini, None, None, 0))
        for peer in (attached, asked):
            closed = peer.expect(CLOSE, 28)
            assert "cell 1, which has nodes of this connection's links, is gone or silent" in str(
                closed.error
            )
            peer.close()
        assert time.monotonic() - began < 28
    assert untouched.await_credit(1) > 0
    untouched.send(transfer(0, handle=1))
    untouched.expect(DISPOSITION)
    untouched.close()


def test_a_cell_that_stands_still_is_started_again(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "5000000")
    broker = start_broker(args=ARGS)
    before = pids_of(broker)
    began = time.monotonic()
    os.kill(before[1], signal.SIGSTOP)
    wait_for_cell(broker, 1, before[1])
    assert time.monotonic() - began > 3.5
    assert "cell 1 hasn't answered for 5 s: it is killed" in broker.log
    after = pids_of(broker)
    assert {cell: after[cell] for cell in (0, 2)} == {cell: before[cell] for cell in (0, 2)}
    [name] = names_in(1, CELLS, 1)
    connection = BlockingConnection(broker.url, timeout=10)
    connection.create_sender(name).send(Message("on"))
    connection.close()


def test_cells_that_run_are_left_alone(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the supervisor stands still, or all do, as when a machine or a container is suspended."""
    monkeypatch.setenv("WATCHDOG_USEC", "5000000")
    broker = start_broker(args=ARGS)
    before = pids_of(broker)
    for together in ((broker.pid,), (broker.pid, *before.values())):
        with stopped(*together):
            time.sleep(7)
        time.sleep(1.5)
        assert pids_of(broker) == before
    assert "hasn't answered" not in broker.log
