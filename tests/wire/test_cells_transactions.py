"""Transactions of clients that are connected to another cell than the one that has their nodes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from threading import Thread
from typing import Any

import pytest
from proton import Message
from proton.reactor import AtLeastOnce, AtMostOnce, LinkOption

from broker.client.request import Management
from tests.wire.cells import (
    ARGS,
    CELLS,
    PAIRS,
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
    ACCEPTED,
    BODY,
    CLOSE,
    DETACH,
    DISPOSITION,
    RECEIVER,
    TRANSFER,
    Described,
    RawPeer,
    Symbol,
    performative,
)
from tests.wire.test_cells_moves import move
from tests.wire.test_transactions import Controller

__all__ = ["cells"]
pytestmark = pytest.mark.wire

TRANSACTIONAL = 0x34
LARGE = 300_000
DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41" + BODY


@contextmanager
def controller_in(broker: RunningBroker, cell: int) -> Iterator[Controller]:
    """A controller whose connection has gone to a cell for its first link, and stays there."""
    found = Controller(broker.url)
    found.sender(names_in(cell, CELLS, 1, "first")[0], name="first")
    try:
        yield found
    finally:
        found.close()


def await_depth(broker: RunningBroker, cell: int, name: str, msgs: int) -> None:
    wait_until(
        lambda: depths(broker, cell).get(name, 0) == msgs,
        10,
        lambda: f"{msgs} messages in {name}, not {depths(broker, cell).get(name)}",
    )


def fill(broker: RunningBroker, cell: int, name: str, *bodies: str | int) -> None:
    with settled_in(broker, cell) as connection:
        sender = connection.create_sender(name)
        for body in bodies:
            sender.send(Message(body, durable=True))


class RawController(RawPeer):
    """A peer whose link 0 goes to a node of one cell, where it is connected, and link 9 to a coordinator."""

    def __init__(self, port: int, cell: int, max_frame: int = 65_536) -> None:
        super().__init__(port)
        # One that says no product is cut off, not closed, where a cell is lost.
        self.open(max_frame=max_frame, properties={Symbol("product"): "raw"})
        self.begin()
        self.attach_sender(names_in(cell, CELLS, 1, "first")[0], name="first", handle=0)
        self.await_credit(0)
        self.number = 0

    def coordinate(self) -> None:
        self.attach_coordinator(handle=9)
        self.await_credit(9)

    def request(self, *fields: int) -> None:
        """Ask the coordinator for something."""
        payload = b"\x00\x53\x77\x00\x53" + bytes(fields)
        self.send(self.transferred(9, payload))

    def declare(self) -> bytes:
        self.request(0x31, 0x45)
        return bytes(self.expect(DISPOSITION).fields[4].value[0])  # type: ignore[attr-defined]

    def transferred(
        self, handle: int, payload: bytes = BODY, txn: bytes | None = None, settled: bool = False
    ) -> bytes:
        """Return the frame that sends a message."""
        state = None if txn is None else Described(TRANSACTIONAL, [txn])
        number, self.number = self.number, self.number + 1
        tag = number.to_bytes(4, "big")
        return performative(TRANSFER, handle, number, tag, 0, settled, False, None, state, payload=payload)

    def discharging(self, txn: bytes, fail: bool = False) -> bytes:
        """Return the frame that discharges a transaction."""
        fields = bytes([0x32, 0xC0, len(txn) + 4, 2, 0xA0, len(txn)]) + txn + (b"\x41" if fail else b"\x42")
        return self.transferred(9, b"\x00\x53\x77\x00\x53" + fields)

    def discharge(self, txn: bytes, fail: bool = False) -> str:
        self.send(self.discharging(txn, fail))
        return self.outcome(self.number - 1)

    def outcome(self, number: int, seconds: float = 10) -> str:
        """Return the outcome of a delivery, as text."""
        while True:
            found = self.expect(DISPOSITION, seconds)
            first: Any = found.field(1)
            last: Any = found.field(2) or first
            if first <= number <= last and found.field(4):
                return str(found.field(4))


def is_accepted(outcome: str) -> bool:
    return "36" in outcome and "37" not in outcome


# --- what it does


@pytest.mark.parametrize(("here", "there"), PAIRS)
@pytest.mark.parametrize("settles", [True, False])
def test_messages_are_posted_and_taken_in_a_transaction(
    cells: RunningBroker, here: int, there: int, settles: bool
) -> None:
    """A client may settle what it takes at once, or only once its transaction has ended."""
    name, done = names_in(there, CELLS, 2, f"moved{here}{settles}")
    with controller_in(cells, here) as controller:
        sender, receiver = controller.sender(name), controller.receiver(name)
        transaction = controller.declare()
        for number in range(3):
            transaction.send(sender, Message(number))
        controller.run(0.05)
        assert depths(cells, there)[name] == 0
        controller.commit(transaction)
        await_depth(cells, there, name, 3)
        # Rolled back: nothing comes of it.
        transaction = controller.declare()
        transaction.send(sender, Message("no"))
        controller.abort(transaction)
        await_depth(cells, there, name, 3)
        # Taken and sent on, and undone.
        out = controller.sender(done)
        for commits in (False, True):
            transaction = controller.declare(settles)
            got = controller.take(receiver, 3)
            assert [message.body for _, message in got] == [0, 1, 2]
            assert [message.delivery_count for _, message in got] == [1 if commits and settles else 0] * 3
            for delivery, message in got:
                transaction.accept(delivery)
                transaction.send(out, Message(message.body))
            if commits:
                controller.commit(transaction)
            else:
                controller.abort(transaction)
        await_depth(cells, there, done, 3)
        await_depth(cells, there, name, 0)
        assert not controller.rejected


def test_a_client_may_attach_its_coordinator_first_or_last(cells: RunningBroker) -> None:
    [first, last] = names_in(1, CELLS, 2, "order")
    peer = RawController(cells.port, 0)
    peer.coordinate()
    txn = peer.declare()
    peer.attach_sender(first, name="first foreign", handle=1)
    peer.await_credit(1)
    peer.send(peer.transferred(1, txn=txn))
    assert is_accepted(peer.discharge(txn))
    peer.close()
    peer = RawController(cells.port, 0)
    peer.attach_sender(last, name="foreign", handle=1)
    peer.await_credit(1)
    peer.coordinate()
    txn = peer.declare()
    peer.send(peer.transferred(1, txn=txn), peer.discharging(txn))
    assert is_accepted(peer.outcome(peer.number - 1))
    peer.close()
    await_depth(cells, 1, first, 1)
    await_depth(cells, 1, last, 1)


def test_a_transaction_of_its_own_cell_is_as_ever(cells: RunningBroker) -> None:
    [name], [other] = names_in(0, CELLS, 1, "own"), names_in(1, CELLS, 1, "beside")
    with controller_in(cells, 0) as controller:
        foreign = controller.sender(other)
        sender = controller.sender(name)
        transaction = controller.declare()
        transaction.send(sender, Message("in"))
        # Outside of it.
        foreign.send(Message("out"))
        controller.until(lambda: controller.accepted == 1, "its outcome")
        await_depth(cells, 1, other, 1)
        assert depths(cells, 0)[name] == 0
        controller.commit(transaction)
        await_depth(cells, 0, name, 1)


@pytest.mark.parametrize("options", [AtMostOnce(), AtLeastOnce()])
def test_large_messages_are_posted_in_many_frames(cells: RunningBroker, options: LinkOption) -> None:
    [name] = names_in(2, CELLS, 1, f"large.{type(options).__name__}")
    with controller_in(cells, 1) as controller:
        sender = controller.sender(name, options=options)
        for size in (LARGE, 5 * LARGE):
            transaction = controller.declare()
            for number in range(4):
                transaction.send(sender, Message(bytes([number]) * size))
            controller.commit(transaction)
        transaction = controller.declare()
        transaction.send(sender, Message(bytes(5 * LARGE)))
        controller.abort(transaction)
        await_depth(cells, 2, name, 8)
        receiver = controller.receiver(name)
        got = controller.take(receiver, 8)
        bodies: list[Any] = [message.body for _, message in got]
        assert [len(body) for body in bodies] == 4 * [LARGE] + 4 * [5 * LARGE]


@pytest.mark.parametrize("settled", [True, False], ids=["pre-settled", "unsettled"])
@pytest.mark.parametrize("size", [10, LARGE])
def test_a_commit_waits_for_messages_before_it(cells: RunningBroker, settled: bool, size: int) -> None:
    """Its messages fill the window or the output of their link to the other cell, and not the discharge's."""
    [name] = names_in(1, CELLS, 1, f"waits{settled}{size}")
    peer = RawController(cells.port, 0)
    peer.coordinate()
    peer.attach_sender(name, name="foreign", handle=1)
    credit = peer.await_credit(1)
    count = min(credit, 5000 if size == 10 else 40)
    payload = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)
    for commits in (True, False):
        txn = peer.declare()
        frames = []
        for _ in range(count):
            if size == 10:
                frames.append(peer.transferred(1, payload, txn, settled))
            else:
                frames += _pieces(peer, payload, txn, settled)
        frames += [peer.discharging(txn, fail=not commits)]
        peer.send(b"".join(frames))
        assert is_accepted(peer.outcome(peer.number - 1, 30))
        await_depth(cells, 1, name, count)
        if peer.may_send(1) < 2 * count:
            break
    peer.close()


def _pieces(peer: RawController, payload: bytes, txn: bytes, settled: bool) -> list[bytes]:
    """Return the frames of a large message."""
    number, peer.number = peer.number, peer.number + 1
    state = Described(TRANSACTIONAL, [txn])
    found = []
    for at in range(0, len(payload), 60_000):
        more = at + 60_000 < len(payload)
        fields = (1, number, number.to_bytes(4, "big"), 0, settled, more, None, state)
        found.append(performative(TRANSFER, *fields, payload=payload[at : at + 60_000]))
    return found


def test_a_link_that_is_detached_before_the_commit_loses_nothing(cells: RunningBroker) -> None:
    """As a JMS template does, which makes a producer for each message."""
    [name] = names_in(1, CELLS, 1, "closed")
    peer = RawController(cells.port, 0)
    peer.coordinate()
    for number in range(20):
        txn = peer.declare()
        peer.attach_sender(name, name=f"producer {number}", handle=1)
        peer.await_credit(1)
        peer.send(peer.transferred(1, txn=txn) + performative(DETACH, 1, True) + peer.discharging(txn))
        assert is_accepted(peer.outcome(peer.number - 1))
    peer.close()
    await_depth(cells, 1, name, 20)


def test_a_thousand_transactions_one_after_another(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "many")
    peer = RawController(cells.port, 0)
    peer.coordinate()
    peer.attach_sender(name, name="foreign", handle=1, mode=1)
    peer.await_credit(1)
    for number in range(1000):
        txn = peer.declare()
        while peer.may_send(1) < number + 1:
            peer.await_credit(1)
        peer.send(peer.transferred(1, txn=txn, settled=True))
        assert is_accepted(peer.discharge(txn, fail=number % 10 == 0))
    peer.close()
    await_depth(cells, 2, name, 900)


def test_many_transactions_at_once(cells: RunningBroker) -> None:
    [name] = names_in(2, CELLS, 1, "at-once")
    with controller_in(cells, 0) as controller:
        sender = controller.sender(name)
        transactions = [controller.declare() for _ in range(300)]
        for number, transaction in enumerate(transactions):
            controller.until(lambda: sender.credit > 0, "credit")
            transaction.send(sender, Message(number))
        for transaction in transactions:
            transaction.commit()
        controller.until(lambda: controller.committed == 300, "all of them to be committed")
    await_depth(cells, 2, name, 300)


@pytest.mark.parametrize("fails", [False, True])
def test_the_relay_takes_messages_in_transactions(cells: RunningBroker, fails: bool) -> None:
    names = names_in(2, CELLS, 2, f"relayed{fails}")
    with controller_in(cells, 1) as controller:
        relay = controller.sender(None, name="relay")
        transaction = controller.declare()
        for number in range(10):
            transaction.send(relay, Message(number, address=names[number % 2]))
        if fails:
            controller.abort(transaction)
        else:
            controller.commit(transaction)
        for name in names:
            await_depth(cells, 2, name, 0 if fails else 5)
        assert not controller.rejected


def test_a_message_that_the_relay_refuses_fails_its_transaction(cells: RunningBroker) -> None:
    [good], [bad] = names_in(2, CELLS, 1, "welcome"), names_in(2, CELLS, 1, "refusing")
    with controller_in(cells, 1) as controller:
        relay = controller.sender(None, name="relay")
        transaction = controller.declare()
        transaction.send(relay, Message("good", address=good))
        transaction.send(relay, Message("bad", address=bad))
        transaction.commit()
        controller.until(lambda: bool(controller.discharge_refused), "the commit to be refused")
    await_depth(cells, 2, good, 0)


# --- several cells in one


@pytest.mark.parametrize("sends", [True, False], ids=["sends", "settles"])
@pytest.mark.parametrize("own", [0, 2], ids=["own", "third"])
def test_a_transaction_over_two_cells_fails_as_a_whole(cells: RunningBroker, sends: bool, own: int) -> None:
    """A client that doesn't wait for outcomes, as Qpid JMS, hears of it by its commit; its links stay."""
    here, [name] = names_in(own, CELLS, 2, f"two{sends}{own}")[1], names_in(1, CELLS, 1, f"other{sends}{own}")
    fill(cells, 1, name, "there")
    peer = RawController(cells.port, 0)
    peer.coordinate()
    peer.attach_sender(here, name="here", handle=2)
    peer.await_credit(2)
    txn = peer.declare()
    peer.send(peer.transferred(2, txn=txn))
    if sends:
        peer.attach_sender(name, name="there", handle=1)
        peer.await_credit(1)
        peer.send(peer.transferred(1, txn=txn))
    else:
        peer.attach_receiver(name, name="there", handle=1)
        peer.give_credit(1)
        arrived = peer.expect(TRANSFER).field(1)
        state = Described(TRANSACTIONAL, [txn, Described(ACCEPTED)])
        peer.send(performative(DISPOSITION, RECEIVER, arrived, arrived, True, state))
    refused = peer.discharge(txn)
    assert "amqp:transaction:rollback" in refused
    assert f"in cells {min(own, 1)} and {max(own, 1)}, and a transaction takes those of one cell" in refused
    await_depth(cells, own, here, 0)
    await_depth(cells, 1, name, 1)
    # The links are none the worse.
    txn = peer.declare()
    peer.send(peer.transferred(2, txn=txn))
    assert is_accepted(peer.discharge(txn))
    await_depth(cells, own, here, 1)
    assert not [frame for frame in peer.log if frame.code == DETACH]
    peer.close()


def test_a_transaction_over_two_cells_is_rolled_back(cells: RunningBroker) -> None:
    [here], [there] = names_in(0, CELLS, 1, "back"), names_in(1, CELLS, 1, "back")
    with controller_in(cells, 0) as controller:
        senders = [controller.sender(here), controller.sender(there)]
        transaction = controller.declare()
        for sender in senders:
            transaction.send(sender, Message("no"))
        controller.abort(transaction)
    await_depth(cells, 0, here, 0)
    await_depth(cells, 1, there, 0)


@pytest.mark.parametrize("seed", range(4))
def test_random_transactions_do_all_or_nothing(cells: RunningBroker, seed: int) -> None:
    random = Random(seed)
    names = {name: cell for cell in range(CELLS) for name in names_in(cell, CELLS, 2, f"walk{seed}")}
    there = dict.fromkeys(names, 0)
    with controller_in(cells, 0) as controller:
        senders = {name: controller.sender(name) for name in names}
        receivers = {name: controller.receiver(name) for name in names}
        for _ in range(60):
            transaction = controller.declare(random.random() < 0.5)
            some = random.choice([[0], [1], [2], [0, 1, 2]])
            near = [name for name, cell in names.items() if cell in some]
            posted, taken = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
            for _ in range(random.randrange(6)):
                name = random.choice(near)
                if random.random() < 0.5:
                    transaction.send(senders[name], Message(name))
                    posted[name] += 1
                elif there[name] > taken[name]:
                    transaction.accept(controller.take(receivers[name], 1)[0][0])
                    taken[name] += 1
            used = {names[name] for name in names if posted[name] or taken[name]}
            refused = len(controller.discharge_refused)
            if random.random() < 0.3:
                controller.abort(transaction)
            elif len(used) < 2:
                controller.commit(transaction)
                there = {name: there[name] + posted[name] - taken[name] for name in names}
            else:
                transaction.commit()
                controller.until(lambda: len(controller.discharge_refused) > refused, "a refusal")  # noqa: B023
        assert not controller.rejected
    for name, cell in names.items():
        await_depth(cells, cell, name, there[name])


# --- its end, other than by a discharge


def _lose_connection(peer: RawController) -> None:
    peer.close()


def _detach_coordinator(peer: RawController) -> None:
    peer.send(performative(DETACH, 9, True))
    peer.expect(DETACH)


@pytest.mark.parametrize("end", [_lose_connection, _detach_coordinator])
def test_it_ends_with_its_link(cells: RunningBroker, end: Callable[[RawController], None]) -> None:
    out, back = names_in(1, CELLS, 2, f"ended{end.__name__}")
    fill(cells, 1, back, "x")
    peer = RawController(cells.port, 0)
    peer.coordinate()
    txn = peer.declare()
    peer.attach_sender(out, name="out", handle=1)
    peer.await_credit(1)
    peer.send(peer.transferred(1, txn=txn))
    peer.outcome(peer.number - 1)
    peer.attach_receiver(back, name="back", handle=2)
    peer.give_credit(1, handle=2)
    arrived = peer.expect(TRANSFER).field(1)
    state = Described(TRANSACTIONAL, [txn, Described(ACCEPTED)])
    peer.send(performative(DISPOSITION, RECEIVER, arrived, arrived, True, state))
    end(peer)
    with controller_in(cells, 1) as other:
        [(delivery, message)] = other.take(other.receiver(back), 1)
        assert (message.body, message.delivery_count) == ("x", 1)
        other.accept(delivery)
    await_depth(cells, 1, out, 0)
    peer.close()


def test_its_time_is_limited(start_broker: StartBroker) -> None:
    config = "limits: {transaction_timeout: 1s, max_transactions: 3, max_transaction_size: 20 KB}\n"
    broker = start_broker(config, POLICIES, ARGS)
    [name] = names_in(1, CELLS, 1, "timed")
    peer = RawController(broker.port, 0)
    peer.coordinate()
    peer.attach_sender(name, name="foreign", handle=1)
    peer.await_credit(1)
    # So many that none may be left over.
    for is_discharged in [True] * 4 + [False] * 4:
        txn = peer.declare()
        peer.send(peer.transferred(1, txn=txn))
        peer.outcome(peer.number - 1)
        assert _open_in(broker, 1) == 1
        wait_until(lambda: _open_in(broker, 1) == 0, 10, "its time to be over")
        assert not is_discharged or "amqp:transaction:timeout" in peer.discharge(txn)
    await_depth(broker, 1, name, 0)
    txn = peer.declare()
    peer.send(peer.transferred(1, txn=txn))
    assert is_accepted(peer.discharge(txn))
    await_depth(broker, 1, name, 1)
    # The owner bounds its size, and says so by the commit.
    txn = peer.declare()
    for _ in range(3):
        payload = b"\x00\x53\x75\xb0" + (9000).to_bytes(4, "big") + bytes(9000)
        peer.send(peer.transferred(1, payload, txn))
    assert "amqp:transaction:rollback" in peer.discharge(txn)
    # The client's cell bounds their number.
    for _ in range(3):
        peer.send(peer.transferred(1, txn=peer.declare()))
    peer.request(0x31, 0x45)
    assert "limits.max_transactions" in peer.outcome(peer.number - 1)
    peer.close()
    assert "Traceback" not in broker.log, broker.log


def _open_in(broker: RunningBroker, cell: int) -> int:
    """Return how many transactions are open in a cell."""
    with Management(broker.url, cell=cell) as management:
        found: Any = management.call("READ", "org.sluice.broker", "broker").body
    return int(found["open_transactions"])


@pytest.mark.parametrize("discharged", [False, True], ids=["before the commit", "with the commit"])
def test_a_cell_that_is_killed_has_all_of_it_or_nothing(start_broker: StartBroker, discharged: bool) -> None:
    broker = start_broker(policies=POLICIES, args=ARGS)
    source, target = names_in(1, CELLS, 2, "kept")
    fill(broker, 1, source, *range(10))
    peer = RawController(broker.port, 0)
    peer.coordinate()
    txn = peer.declare()
    peer.attach_sender(target, name="target", handle=1)
    peer.await_credit(1)
    peer.attach_receiver(source, name="source", handle=2)
    peer.give_credit(10, handle=2)
    arrivals = [peer.expect(TRANSFER).field(1) for _ in range(10)]
    for arrived in arrivals:
        state = Described(TRANSACTIONAL, [txn, Described(ACCEPTED)])
        peer.send(performative(DISPOSITION, RECEIVER, arrived, arrived, True, state))
        peer.send(peer.transferred(1, DURABLE, txn))
        peer.outcome(peer.number - 1)
    if discharged:
        peer.send(peer.discharging(txn))
    pid = kill_cell(broker, 1)
    peer.await_end(20)
    peer.close()
    wait_for_cell(broker, 1, pid)
    found = depths(broker, 1)
    assert (found[source], found.get(target, 0)) in ([(10, 0), (0, 10)] if discharged else [(10, 0)])
    with controller_in(broker, 0) as controller:
        sender = controller.sender(target)
        transaction = controller.declare()
        transaction.send(sender, Message("after"))
        controller.commit(transaction)
    await_depth(broker, 1, target, found.get(target, 0) + 1)


@pytest.mark.parametrize("own", [0, 1], ids=["client elsewhere", "client at home"])
@pytest.mark.parametrize("discharged", [False, True], ids=["before the commit", "with the commit"])
def test_a_queue_that_moves_has_all_of_it_or_nothing(
    start_broker: StartBroker, own: int, discharged: bool
) -> None:
    """One queue of a transaction goes to another cell while it is open, or while it commits."""
    broker = start_broker(policies=POLICIES, args=ARGS)
    source, target = names_in(1, CELLS, 2, "moving")
    fill(broker, 1, source, *range(10))
    peer = RawController(broker.port, own)
    peer.coordinate()
    txn = peer.declare()
    peer.attach_sender(target, name="target", handle=1)
    peer.await_credit(1)
    peer.attach_receiver(source, name="source", handle=2)
    peer.give_credit(10, handle=2)
    arrivals = [peer.expect(TRANSFER).field(1) for _ in range(10)]
    for arrived in arrivals:
        state = Described(TRANSACTIONAL, [txn, Described(ACCEPTED)])
        peer.send(performative(DISPOSITION, RECEIVER, arrived, arrived, False, state))
        peer.send(peer.transferred(1, DURABLE, txn))
        peer.outcome(peer.number - 1)
    mover = Thread(target=lambda: move(broker, source, 2, "--wait", "2"))
    mover.start()
    broker.wait_for_log(f"'{source}' goes to cell 2")
    if discharged:
        peer.send(peer.discharging(txn))
    mover.join(30)
    peer.await_end(20)
    peer.close()
    wait_until(lambda: sum(_open_in(broker, cell) for cell in range(CELLS)) == 0, 10, "transactions to end")
    assert source not in depths(broker, 1)
    left, come = depths(broker, 2)[source], depths(broker, 1).get(target, 0)
    assert (left, come) in ([(10, 0), (0, 10)] if discharged else [(10, 0)])
    # Both go on: what is left is taken, and something else is sent, in a transaction with one of them each.
    with controller_in(broker, 0) as controller:
        receiver, transaction = controller.receiver(source), controller.declare()
        for delivery, _ in controller.take(receiver, left):
            transaction.accept(delivery)
        controller.commit(transaction)
        sender, transaction = controller.sender(target), controller.declare()
        transaction.send(sender, Message("after"))
        controller.commit(transaction)
    await_depth(broker, 2, source, 0)
    await_depth(broker, 1, target, come + 1)


def test_a_commit_in_a_cell_that_stands_still_ends(start_broker: StartBroker) -> None:
    broker = start_broker(policies=POLICIES, args=ARGS)
    [name] = names_in(1, CELLS, 1, "kept")
    peer = RawController(broker.port, 0)
    peer.coordinate()
    peer.attach_sender(name, name="kept", handle=1)
    peer.await_credit(1)
    txn = peer.declare()
    peer.send(peer.transferred(1, DURABLE, txn))
    peer.outcome(peer.number - 1)
    pid = pids_of(broker)[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        peer.send(peer.discharging(txn))
        assert peer.expect(CLOSE, 30).condition == "amqp:connection:forced"
    finally:
        peer.close()
        os.kill(pid, signal.SIGKILL)
    wait_for_cell(broker, 1, pid)
    assert depths(broker, 1).get(name, 0) == 0


def test_a_node_that_is_deleted_fails_its_transaction(cells: RunningBroker) -> None:
    [name] = names_in(1, CELLS, 1, "gone")
    peer = RawController(cells.port, 0)
    peer.coordinate()
    txn = peer.declare()
    peer.attach_sender(name, name="gone", handle=1)
    peer.await_credit(1)
    peer.send(peer.transferred(1, txn=txn))
    peer.outcome(peer.number - 1)
    with Management(cells.url, cell=1) as management:
        management.call("DELETE", "org.sluice.queue", name)
    peer.expect(DETACH)
    refused = peer.discharge(txn)
    assert "amqp:transaction:rollback" in refused
    assert f"'{name}' was deleted" in refused
    # A message that comes for a link that is gone isn't left out of its transaction either.
    txn = peer.declare()
    peer.send(peer.transferred(1, txn=txn))
    assert "came for a link that is detached" in peer.discharge(txn)
    peer.close()


def test_a_client_declares_no_global_transaction(cells: RunningBroker) -> None:
    peer = RawController(cells.port, 0)
    peer.coordinate()
    peer.request(0x31, 0xC0, 4, 1, 0xA0, 1, 0x78)
    assert "amqp:not-implemented" in peer.outcome(peer.number - 1)
    assert "amqp:transaction:unknown-id" in peer.discharge(b"nobody's")
    peer.close()
