"""Random walks of transactions beside a plain model: all of each or nothing, at every step.

Several controllers post to two queues with thresholds and retire from them, commit, roll back, run out of
time, lose their links and consumers; others send and settle outside of transactions. After each step the
audit finds every promise covered, and each queue has exactly what the model says.
"""

from __future__ import annotations

import random
from collections import deque

import pytest

from broker import constants
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.node import Node
from broker.engine.transaction import OPEN, Transaction
from broker.flow.producer_credit import Port, ProducerCredit
from broker.manage.audit import audit
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry
from tests.unit.engine.parts_world import MS, PartsWorld

STEPS = 1500
BODY = b"\x00\x53\x77\xa0"
ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27


class Parked:
    """A message outside its node."""

    def __init__(self, data: bytes, transaction: Transaction | None) -> None:
        self.data = data
        self.transaction = transaction


class Sender(Port):
    """A producer's link. It sends on the credit that it has heard of, which lags behind what was said."""

    def __init__(self, walk: Walk, node: Node) -> None:
        self.walk = walk
        self.node = node
        self.credit = 0
        self.account: ProducerCredit = walk.world.engine.producers.open(node, self, True)

    def grant(self, msgs: int) -> None: ...

    def revoke(self, msgs: int) -> None: ...

    def hear(self) -> None:
        self.credit = self.account.outstanding

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, Parked)
        if parked.transaction is None:
            self.walk.world.engine.intake.put(self.node, parked.data, 0)
            self.walk.arrived(self.node, parked.data)
            return
        self.walk.world.engine.intake.hold(parked.transaction, self.node, self.account, parked.data, 0)
        self.walk.posted(parked.transaction, self.node, parked.data)
        parked.transaction.unpark(parked)

    def refuse(self, parked: object) -> None:
        assert isinstance(parked, Parked)
        if parked.transaction is not None:
            parked.transaction.unpark(parked)

    def send(self, transaction: Transaction | None) -> None:
        engine = self.walk.world.engine
        data = self.walk.new_message()
        self.credit -= 1
        if transaction is None:
            code = engine.intake.arrive(self.node, self.account, data, 0, False)
        else:
            code = engine.intake.arrive(self.node, self.account, data, 0, False, transaction)
        if code == constants.PARK:
            parked = Parked(data, transaction)
            engine.parking.park(self.node, self.account, parked, len(data), False)
            if transaction is not None:
                transaction.park(parked, self.account)
            return
        assert code == constants.ACCEPTED
        if transaction is None:
            self.walk.arrived(self.node, data)
        else:
            self.walk.posted(transaction, self.node, data)

    def close(self) -> None:
        for item in list(self.account.parked):
            assert isinstance(item[0], Parked)
            if self.account.unpark(item[0]) and item[0].transaction is not None:
                item[0].transaction.lose(item[0])
        self.walk.world.engine.producers.close(self.node, self.account)


class Taker(Consumer):
    """A consumer with a window; ``retired`` deliveries are unsettled until their transaction ends."""

    def __init__(self, walk: Walk, node: Node) -> None:
        super().__init__()
        self.walk = walk
        self.node = node
        self.held: list[Entry] = []
        self.retired: dict[int, Entry] = {}

    def capacity(self) -> int:
        return 5 - len(self.held) - len(self.retired)

    def send(self, entry: Entry) -> None:
        self.held.append(entry)

    def discharged(self, number: int, committed: bool) -> None:
        entry = self.retired.pop(number)
        if not committed:
            self.held.append(entry)


class Walk:
    """The engine, and the model: what each queue has, and what each open transaction would add and take."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = PartsWorld()
        self.count = 0
        limits = {"flow_stop_count": 8, "flow_resume_count": 4, "max_delivery_count": 0}
        self.nodes = [self.world.create("a", **limits), self.world.create("b", flow_stop_size=200)]
        self.there: dict[Node, set[bytes]] = {node: set() for node in self.nodes}
        self.adds: dict[Transaction, list[tuple[Node, bytes]]] = {}
        self.takes: dict[Transaction, list[tuple[Node, bytes, int]]] = {}
        self.waiting: set[Transaction] = set()
        self.senders = [Sender(self, node) for node in self.nodes for _ in range(3)]
        self.takers: list[Taker] = []
        self.open: list[Transaction] = []
        self.world.turn()

    def new_message(self) -> bytes:
        self.count += 1
        payload = f"{self.count}".encode() + b"." * self.random.choice((0, 0, 20, 90))
        return BODY + bytes((len(payload),)) + payload

    def arrived(self, node: Node, data: bytes) -> None:
        self.there[node].add(data)

    def posted(self, transaction: Transaction, node: Node, data: bytes) -> None:
        self.adds[transaction].append((node, data))

    # --- the owner of all transactions

    def came_in(self, transaction: Transaction) -> None:
        if transaction in self.waiting:
            self.world.engine.transactions.finish_later(transaction)

    def finish(self, transaction: Transaction) -> None:
        if transaction in self.waiting:
            self.commit(transaction)

    def timed_out(self, transaction: Transaction) -> None:
        self.roll_back(transaction)

    # --- steps

    def declare(self) -> None:
        transactions = self.world.engine.transactions
        begun = transactions.declare(b"t", self, self.random.choice((0, 200 * MS)), 1 << 20)
        self.open.append(begun)
        self.adds[begun] = []
        self.takes[begun] = []

    def commit(self, transaction: Transaction) -> None:
        if transaction.parked and not transaction.fault:
            self.waiting.add(transaction)
            return
        self.forget(transaction)
        if self.world.engine.transactions.commit(transaction) == constants.REFUSED:
            assert transaction.fault
            return
        for node, data in self.adds[transaction]:
            self.there[node].add(data)
        for node, data, outcome in self.takes[transaction]:
            if outcome in (ACCEPTED, REJECTED):
                self.there[node].remove(data)

    def roll_back(self, transaction: Transaction) -> None:
        self.forget(transaction)
        self.world.engine.transactions.roll_back(transaction)

    def forget(self, transaction: Transaction) -> None:
        self.waiting.discard(transaction)
        self.open.remove(transaction)

    def retire(self, transaction: Transaction, taker: Taker) -> None:
        entry = taker.held.pop(self.random.randrange(len(taker.held)))
        outcome = self.random.choice((ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, MODIFIED, REJECTED))
        retired = transaction.retire(taker.node, entry, outcome)
        retired.failed = self.random.random() < 0.5
        if self.random.random() < 0.5:
            retired.link = taker
            retired.number = entry.seq
            taker.retired[entry.seq] = entry
        self.takes[transaction].append((taker.node, entry.data, outcome))

    def drop(self, taker: Taker) -> None:
        self.takers.remove(taker)
        self.world.engine.delivery.remove_consumer(taker.node, taker)
        for transaction in self.open:
            for retired in transaction.retirements:
                if retired.link is taker:
                    retired.link = None
        for entry in taker.held:
            self.world.engine.settlement.requeue(taker.node, entry, True)

    def replace(self, sender: Sender) -> None:
        self.senders.remove(sender)
        sender.close()
        self.senders.append(Sender(self, sender.node))

    def settle(self, taker: Taker) -> None:
        entry = taker.held.pop()
        self.world.engine.settlement.acknowledge(taker.node, entry)
        self.there[taker.node].remove(entry.data)

    def change(self) -> None:
        node = self.nodes[0]
        stop = self.random.randint(2, 12)
        given = {"flow_stop_count": stop, "flow_resume_count": max(stop // 2, 1), "max_delivery_count": 0}
        self.world.engine.configurator.change(node, resolve(given, BrokerDefaults()))

    def step(self) -> None:
        ready = [each for each in self.open if each not in self.waiting]
        sender = self.random.choice(self.senders)
        holding = [taker for taker in self.takers if taker.held]
        dice = self.random.random()
        if dice < 0.40 and sender.credit > 0:
            sender.send(self.random.choice((None, *ready)))
        elif dice < 0.55 and holding and ready:
            self.retire(self.random.choice(ready), self.random.choice(holding))
        elif dice < 0.65 and holding:
            self.settle(self.random.choice(holding))
        elif dice < 0.72 and len(self.open) < 4:
            self.declare()
        elif dice < 0.78 and ready:
            self.commit(self.random.choice(ready))
        elif dice < 0.82 and self.open:
            self.roll_back(self.random.choice(self.open))
        elif dice < 0.86 and len(self.takers) < 4:
            taker = Taker(self, self.random.choice(self.nodes))
            self.takers.append(taker)
            self.world.engine.delivery.add_consumer(taker.node, taker)
        elif dice < 0.88 and self.takers:
            self.drop(self.random.choice(self.takers))
        elif dice < 0.90:
            self.replace(sender)
        elif dice < 0.92:
            self.change()
        else:
            self.world.engine.transactions.end_overdue(self.world.engine.turn.now_ns)
        self.world.turn(self.random.choice((0, 0, 1, 20)))
        if self.random.random() < 0.4:
            self.random.choice(self.senders).hear()
        self.check()

    def check(self) -> None:
        assert audit(self.world.engine).breaches == ()
        for node in self.nodes:
            seen = [entry.data for entry in node.queue]
            assert len(seen) == len(set(seen)), "nothing is there twice"
            assert set(seen) == self.there[node]
            kept = sum(1 for each in self.open for where, _ in self.adds[each] if where is node)
            assert node.allocator.uncommitted_msgs == kept
        assert {each.state for each in self.open} <= {OPEN}
        assert set(self.open) == self.world.engine.transactions.open


@pytest.mark.parametrize("seed", range(8))
def test_all_of_each_or_nothing(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()


@pytest.mark.parametrize("seed", range(4))
def test_everybody_gets_on_once_transactions_end(seed: int) -> None:
    """However a walk left things: transactions ended, consumers settling, each sender gets credit."""
    walk = Walk(100 + seed)
    for _ in range(STEPS // 3):
        walk.step()
    for taker in list(walk.takers):
        walk.drop(taker)
    for transaction in list(walk.open):
        walk.roll_back(transaction)
    drains = [Taker(walk, node) for node in walk.nodes]
    walk.takers = list(drains)
    for taker in drains:
        walk.world.engine.delivery.add_consumer(taker.node, taker)
    hungry = deque(walk.senders)
    for _ in range(2000):
        for taker in drains:
            while taker.held:
                walk.settle(taker)
        if hungry and hungry[0].credit > 0:
            hungry.popleft()
        for sender in walk.senders:
            if sender.credit > 0:
                sender.send(None)
            sender.hear()
        walk.world.turn(5)
        walk.check()
        if not hungry:
            break
    assert not hungry, f"{len(hungry)} senders never got credit"
