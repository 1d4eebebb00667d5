"""One reservation down the tree: subscriptions, nodes, connections and the broker (FLOW §4, §6).

After every step, at every gate: what is there and what is promised fit below its limit together.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from broker import constants
from broker.config.node import NodeSettings
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.gate import Gate
from broker.flow.producer_credit import AllocatorPort, Port, ProducerCredit
from broker.store.memory import MemoryStore
from tests.property.walking import BODY, DEFAULTS, HELD, MS, SIZE, Taker

pytestmark = pytest.mark.flow


def held(account: ProducerCredit) -> int:
    """What one of its credits reserves in memory."""
    return account.reserve_bytes + constants.HELD_BYTES


class Sender(Port):
    """A producer that hears of its credit at once."""

    def __init__(self, engine: Engine, node: Node, budget: ConnectionBudget | None) -> None:
        self.engine = engine
        self.node = node
        self.credit = 0
        self.sent = 0
        # Of a peer that doesn't read while it sends: what it may still send on credit taken back.
        self.input_stopped = False
        self.unheard = 0
        self.account: ProducerCredit = engine.producers.open(node, self, True, budget)

    def grant(self, msgs: int) -> None:
        heard = min(msgs, self.unheard)
        self.unheard -= heard
        self.credit += msgs

    def revoke(self, msgs: int) -> None:
        self.credit -= msgs
        if self.input_stopped:
            self.unheard += msgs

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, bytes)
        self.engine.intake.put(self.node, parked, constants.IS_DURABLE)

    def send(self) -> None:
        if self.credit > 0:
            self.credit -= 1
        elif self.unheard > 0:
            self.unheard -= 1
        else:
            return
        self.sent += 1
        code = self.engine.intake.arrive(self.node, self.account, BODY, constants.IS_DURABLE, False)
        assert code != constants.OVERSENT
        if code == constants.PARK:
            self.engine.parking.park(self.node, self.account, BODY, SIZE, False)


class Tree:
    """Two queues, two topics with subscriptions of every kind, three connections, and one broker.

    With ``store_msgs`` one of the queues and most subscriptions are durable, and so many messages have room
    on disk.
    """

    def __init__(self, seed: int, late: bool, store_msgs: int = 0) -> None:
        self.random = random.Random(seed)
        self.late = late
        self.now_ns = MS
        self.engine = Engine(True, MemoryStore() if store_msgs else None)
        self.engine.begin_turn(self.now_ns)
        self.engine.limit(150 * HELD, store_msgs * SIZE)
        strict = {"byte_reservation": "strict", "max_message_size": SIZE, "flow_stop_size": 90 * SIZE}
        queue = resolve({**strict, "flow_stop_count": 60}, DEFAULTS)
        topic = resolve({**strict, "kind": "topic", "flow_stop_count": 30, "max_count": 100}, DEFAULTS)
        self.queues = [
            self.engine.lifecycle.create("a", replace(queue, durable=True)),
            self.engine.lifecycle.create("b", queue),
        ]
        self.topics = [self.engine.lifecycle.create(name, topic) for name in ("t", "u")]
        kinds = {
            "holds": topic,
            "sheds": replace(topic, pending_message_limit=5, flow_stop_count=0, flow_stop_size=0),
            "free": replace(topic, flow_control=False, max_count=40),
        }
        self.taken: list[Node] = [*self.queues]
        for name, settings in kinds.items():
            for each in self.topics:
                self.taken.append(self.subscribe(f"{each.name}/{name}", [each], settings))
        self.taken.append(self.subscribe("both", self.topics, topic))
        self.engine.topology.bind(self.topics[0], self.queues[0])
        self.budgets = [ConnectionBudget(12 * HELD), ConnectionBudget(50 * HELD), None]
        self.senders: list[Sender] = []
        self.takers: list[tuple[Node, Taker]] = []

    def subscribe(self, name: str, topics: list[Node], settings: NodeSettings) -> Node:
        durable = b"{}" if self.engine.durability.commit is not None and not name.endswith("sheds") else b""
        node = self.engine.lifecycle.subscribe(name, "#", settings, durable)
        for topic in topics:
            self.engine.topology.bind(topic, node)
        return node

    def step(self) -> None:
        verb = self.random.choice([self.open, self.send, self.send, self.send, self.settle, self.settle,
                                   self.consume, self.close, self.hold, self.wait])  # fmt: skip
        verb()
        self.engine.end_turn()
        self.check()
        if self.engine.durability.commit is not None and self.random.random() < 0.7:
            self.engine.seal()
            self.engine.attend_store()
        self.now_ns += self.random.choice([0, MS, 11 * MS])
        self.engine.begin_turn(self.now_ns)
        self.engine.end_turn()
        self.check()

    def open(self) -> None:
        if len(self.senders) < 12:
            node = self.random.choice([*self.queues, *self.topics])
            sender = Sender(self.engine, node, self.random.choice(self.budgets))
            sender.input_stopped = self.late and self.random.random() < 0.5
            self.senders.append(sender)

    def send(self) -> None:
        if self.senders:
            sender = self.random.choice(self.senders)
            for _ in range(self.random.randrange(1, 20)):
                sender.send()

    def settle(self) -> None:
        for node, taker in self.takers:
            for _ in range(self.random.randrange(0, len(taker.held) + 1)):
                taker.in_flight -= 1
                self.engine.settlement.acknowledge(node, taker.held.pop(0))

    def consume(self) -> None:
        if len(self.takers) < 8:
            node, taker = self.random.choice(self.taken), Taker()
            self.engine.delivery.add_consumer(node, taker)
            self.takers.append((node, taker))

    def close(self) -> None:
        if self.senders and self.random.random() < 0.3:
            sender = self.senders.pop(self.random.randrange(len(self.senders)))
            self.engine.producers.close(sender.node, sender.account)

    def hold(self) -> None:
        node = self.random.choice([*self.queues, *self.topics])
        self.engine.actions.hold(node, not node.gate.held)

    def wait(self) -> None:
        self.now_ns += 150 * MS

    # --- the laws

    def check(self) -> None:
        accounts = [
            account for node in self.engine.topology.nodes.values() for account in node.allocator.accounts
        ]
        for node in self.taken:
            if node.gate.enforced:
                self.fits(node.gate)
        for topic in self.topics:
            for part in topic.subscriptions:
                assert (topic.allocator.ways_to(part.gate) > 0) != part.never_blocks_publishers
                if part.never_blocks_publishers:
                    assert (part.gate.promised_msgs, part.gate.closed) == (0, False)
        if not self.late:
            self.fits(self.engine.depths.memory)
            self.fits(self.engine.depths.disk)
        disk = sum(a.outstanding * a.reserve_bytes * self.kept(a.allocator) for a in accounts)
        assert self.engine.depths.disk.promised_bytes == disk
        memory = sum(a.outstanding * a.allocator.reservations.copies * held(a) for a in accounts)
        assert self.engine.depths.memory.promised_bytes == memory
        for budget in self.budgets:
            if budget is None:
                continue
            self.fits(budget.gate)
            mine = [account for account in accounts if account.budget is budget]
            assert sorted(map(id, mine)) == sorted(map(id, budget.accounts))
            assert budget.gate.promised_msgs == sum(a.outstanding for a in mine)
            assert budget.gate.promised_bytes == sum(a.outstanding * held(a) for a in mine)
            assert budget.gate.depth_bytes == sum(len(a.parked) * HELD for a in mine)
            assert {a for a in mine if a.waits_for_budget} == set(budget.budget_queue)
            assert not budget.budget_queue or budget in self.engine.credit.budgets_in_demand
        for account in accounts:
            assert account.granted == account.used + account.withdrawn + account.outstanding
            assert not (account.waits_for_budget and account.waiting)

    def kept(self, allocator: AllocatorPort) -> int:
        """How often a message to that address is written to disk."""
        node = next(each for each in self.engine.topology.nodes.values() if each.allocator is allocator)
        places = node.subscriptions if node.is_topic else [node]
        return sum(each.shelf is not None for each in places)

    @staticmethod
    def fits(gate: Gate) -> None:
        """Messages on credit taken back come in whatever there is: then nothing is promised beside them."""
        if gate.promised_msgs == 0:
            return
        if gate.stop_msgs:
            assert gate.depth_msgs + gate.promised_msgs <= gate.stop_msgs, gate.name
        if gate.stop_bytes and gate.depth_msgs + gate.promised_msgs > 1:
            assert gate.depth_bytes + gate.promised_bytes <= gate.stop_bytes, gate.name


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("late", [False, True])
def test_the_sum_of_all_promises_fits_everywhere(seed: int, late: bool) -> None:
    tree = Tree(seed, late)
    for _ in range(400):
        tree.step()
    assert sum(sender.sent for sender in tree.senders) > 0


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("late", [False, True])
def test_each_copy_that_is_kept_has_room_on_disk(seed: int, late: bool) -> None:
    tree = Tree(seed, late, store_msgs=70)
    deepest = 0
    for _ in range(400):
        tree.step()
        deepest = max(deepest, tree.engine.depths.disk.depth_bytes)
    assert deepest > 40 * SIZE


@pytest.mark.parametrize("seed", range(6))
def test_whoever_waits_for_its_connection_gets_credit_in_the_end(seed: int) -> None:
    """Twelve links of one connection whose budget has room for four messages; all of them get their turn."""
    tree = Tree(seed, late=False)
    budget = tree.budgets[0] = ConnectionBudget(4 * HELD)
    for _ in range(12):
        tree.senders.append(Sender(tree.engine, tree.queues[1], budget))
    tree.engine.end_turn()
    for node in (tree.queues[1],):
        taker = Taker()
        tree.engine.delivery.add_consumer(node, taker)
        tree.takers.append((node, taker))
    for _ in range(3000):
        tree.random.choice(tree.senders).send()
        tree.settle()
        tree.engine.end_turn()
        tree.check()
        tree.now_ns += 4 * MS
        tree.engine.begin_turn(tree.now_ns)
        tree.engine.end_turn()
    assert min(sender.sent for sender in tree.senders) > 0


def test_a_message_larger_than_its_connection_s_budget_goes_alone() -> None:
    engine = Engine()
    engine.begin_turn(MS)
    node = engine.lifecycle.create(
        "q", resolve({"byte_reservation": "strict", "max_message_size": 2000}, DEFAULTS)
    )
    budget = ConnectionBudget(500)
    first, second = (Sender(engine, node, budget) for _ in range(2))
    engine.end_turn()
    assert sorted((first.credit, second.credit)) == [0, 1]
