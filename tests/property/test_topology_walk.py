"""Nodes, subscriptions, bindings and bridges come, change and go under their producers (FLOW §4, §6).

After every step each promise is held by a link, and each budget is asked for every copy there will be. At the
end every producer that is still there gets its turn, and the broker comes to rest.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest

from broker import constants
from broker.config.node import NodeSettings
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import OperatorError
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.producer_credit import Port, ProducerCredit
from broker.manage.audit import audit
from broker.store.memory import MemoryStore
from broker.store.port import FAILED, FULL, WRITING
from tests.property.walking import BODY, DEFAULTS, HELD, MS, SIZE, Taker

pytestmark = pytest.mark.flow

# How many messages a link that reserves nothing leaves parked before it sends more.
PARKED = 5


class Sender(Port):
    """A producer that hears of its credit at once."""

    def __init__(self, engine: Engine, node: Node, promised: bool, budget: ConnectionBudget | None) -> None:
        self.engine = engine
        self.node = node
        self.promised = promised
        self.credit = 0
        self.sent = 0
        self.account: ProducerCredit = engine.producers.open(node, self, promised, budget)

    def grant(self, msgs: int) -> None:
        self.credit += msgs

    def revoke(self, msgs: int) -> None:
        self.credit -= msgs

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, bytes)
        self.engine.intake.put(self.node, parked, constants.IS_DURABLE)

    def refuse(self, parked: object) -> None:
        """It was told; it doesn't send that one again."""

    def send(self) -> None:
        if self.credit == 0 if self.promised else len(self.account.parked) >= PARKED:
            return
        self.credit -= self.promised
        self.sent += 1
        code = self.engine.intake.arrive(self.node, self.account, BODY, constants.IS_DURABLE, False)
        assert code != constants.OVERSENT
        if code == constants.PARK:
            self.engine.parking.park(self.node, self.account, BODY, SIZE, False)


class World:
    """A broker with room for 150 messages in memory and 70 on disk."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ns = MS
        self.store = MemoryStore()
        self.engine = Engine(True, self.store)
        self.engine.begin_turn(self.now_ns)
        self.engine.limit(150 * HELD, 70 * SIZE)
        self.budgets = [ConnectionBudget(12 * HELD), ConnectionBudget(50 * HELD), None]
        self.senders: list[Sender] = []
        self.takers: list[tuple[Node, Taker]] = []
        self.made = 0
        for _ in range(3):
            self.create()

    def step(self) -> None:
        verbs: list[Callable[[], None]]
        verbs = [self.create, self.delete, self.subscribe, self.unsubscribe, self.bind, self.bridge,
                 self.unbridge, self.change, self.fail, self.open, self.open, self.consume, self.leave,
                 self.close, self.hold, self.wait, self.purge]  # fmt: skip
        verbs += [self.send, self.send, self.send, self.send, self.settle, self.settle]
        self.random.choice(verbs)()
        self.engine.end_turn()
        self.check()
        if self.random.random() < 0.7:
            self.engine.seal()
            self.engine.attend_store()
        self.turn(self.random.choice([0, MS, 11 * MS]))

    def turn(self, after_ns: int) -> None:
        self.now_ns += after_ns
        self.engine.begin_turn(self.now_ns)
        self.engine.end_turn()
        self.check()

    def settings(self, kind: str) -> NodeSettings:
        given: dict[str, object] = {"byte_reservation": "strict", "max_message_size": SIZE}
        given["durable"] = self.maybe(0.5)
        if kind == "topic":
            given["kind"] = kind
        elif self.maybe(0.3):
            given |= {"overflow": self.random.choice(["ring", "drop_newest"]), "max_count": 100}
        if self.maybe(0.7) and given.get("overflow") != "ring":
            given["flow_stop_count"] = self.random.choice([3, 20, 60])
        elif self.maybe(0.3):
            given["flow_control"] = False
        if self.maybe(0.2):
            given["enforce_flow"] = "with_active_consumers"
        if self.maybe(0.2):
            given["when_full"] = "reject"
        return resolve(given, DEFAULTS)

    def maybe(self, part: float) -> bool:
        return self.random.random() < part

    def nodes(self, topics: bool = True, queues: bool = True) -> list[Node]:
        found = self.engine.topology.nodes.values()
        return [each for each in found if (topics if each.is_topic else queues)]

    def takers_of(self) -> list[Node]:
        return [*self.nodes(topics=False), *self.engine.topology.subscriptions.values()]

    def create(self) -> None:
        if len(self.engine.topology.nodes) < 8:
            self.made += 1
            kind = self.random.choice(["topic", "queue"])
            self.engine.lifecycle.create(f"{kind}{self.made}", self.settings(kind), b"{}")

    def delete(self) -> None:
        if self.engine.topology.nodes and self.maybe(0.4):
            self.gone(self.engine.lifecycle.delete(self.random.choice(self.nodes()).name))

    def gone(self, node: Node) -> None:
        self.senders = [each for each in self.senders if each.node is not node]
        self.takers = [each for each in self.takers if each[0] is not node]

    def subscribe(self) -> None:
        topics = self.nodes(queues=False)
        if topics and len(self.engine.topology.subscriptions) < 8:
            self.made += 1
            kept = b"{}" if self.maybe(0.6) else b""
            node = self.engine.lifecycle.subscribe(f"s{self.made}", "#", self.settings("queue"), kept)
            for topic in self.random.sample(topics, min(self.random.randrange(1, 3), len(topics))):
                self.engine.topology.bind(topic, node)

    def unsubscribe(self) -> None:
        if self.engine.topology.subscriptions:
            node = self.random.choice(list(self.engine.topology.subscriptions.values()))
            self.engine.lifecycle.unsubscribe(node)
            self.gone(node)

    def bind(self) -> None:
        topics, takers = self.nodes(queues=False), self.takers_of()
        if topics and takers:
            topic, node = self.random.choice(topics), self.random.choice(takers)
            verb = self.engine.topology.unbind if node in topic.subscriptions else self.engine.topology.bind
            verb(topic, node)

    def bridge(self) -> None:
        if len(self.engine.topology.nodes) > 1:
            source, target = self.random.sample(self.nodes(), 2)
            with contextlib.suppress(OperatorError):
                self.engine.topology.bridging.add(source, target)

    def unbridge(self) -> None:
        if self.engine.topology.bridging.all:
            self.engine.topology.bridging.remove(self.random.choice(self.engine.topology.bridging.all))

    def change(self) -> None:
        if every := list(self.engine.topology.every_node()):
            node = self.random.choice(every)
            settings = self.settings("topic" if node.is_topic else "queue")
            self.engine.configurator.change(node, settings)
            if node.shelf is not None or (settings.durable and not node.is_subscription):
                self.engine.lifecycle.define(node, b"{}")

    def fail(self) -> None:
        self.store.state = self.random.choice([WRITING, WRITING, FULL, FAILED])
        self.engine.attend_store()

    def open(self) -> None:
        if self.engine.topology.nodes and len(self.senders) < 12:
            node = self.random.choice(self.nodes())
            promised = self.maybe(0.8) and not self.engine.producers.reject_at_once(node)
            self.senders.append(Sender(self.engine, node, promised, self.random.choice(self.budgets)))

    def send(self) -> None:
        if self.senders:
            sender = self.random.choice(self.senders)
            for _ in range(self.random.randrange(1, 20)):
                sender.send()

    def settle(self, everything: bool = False) -> None:
        for node, taker in self.takers:
            count = len(taker.held)
            for _ in range(count if everything else self.random.randrange(count + 1)):
                taker.in_flight -= 1
                self.engine.settlement.acknowledge(node, taker.held.pop(0))

    def consume(self) -> None:
        if (nodes := self.takers_of()) and len(self.takers) < 8:
            self.take(self.random.choice(nodes))

    def take(self, node: Node) -> None:
        self.takers.append((node, Taker()))
        self.engine.delivery.add_consumer(*self.takers[-1])

    def leave(self) -> None:
        if self.takers and self.maybe(0.5):
            node, taker = self.takers.pop(self.random.randrange(len(self.takers)))
            for entry in taker.held:
                self.engine.settlement.requeue(node, entry, False)
            self.engine.delivery.remove_consumer(node, taker)

    def close(self) -> None:
        if self.senders and self.maybe(0.4):
            sender = self.senders.pop(self.random.randrange(len(self.senders)))
            self.engine.producers.close(sender.node, sender.account)

    def hold(self) -> None:
        if self.engine.topology.nodes:
            node = self.random.choice(self.nodes())
            self.engine.actions.hold(node, not node.gate.held)

    def wait(self) -> None:
        self.now_ns += 150 * MS

    def purge(self) -> None:
        if (nodes := self.takers_of()) and self.maybe(0.3):
            self.engine.actions.purge(self.random.choice(nodes))

    # --- the laws

    def check(self) -> None:
        assert audit(self.engine).breaches == ()
        for node in self.engine.topology.nodes.values():
            places = list(self.engine.topology.bridging.takers(node))
            kept = sum(each.shelf is not None and not each.is_topic for each in places)
            if kept == 0:
                kept = int(self.store.state == FAILED or any(each.shelf is not None for each in places))
            assert node.allocator.takes(self.engine.depths.disk, 1) == kept
            assert node.allocator.reservations.copies == max(sum(not each.is_topic for each in places), 1)
        disk = self.engine.depths.disk
        if disk.promised_msgs > 0 and disk.depth_msgs + disk.promised_msgs > 1:
            assert disk.depth_bytes + disk.promised_bytes <= disk.stop_bytes

    def serve_all(self) -> None:
        """All is well again and everybody receives: whoever wants to send three messages can."""
        self.store.state = WRITING
        self.engine.attend_store()
        for node in self.nodes():
            self.engine.actions.hold(node, False)
        for node in self.takers_of():
            self.take(node)
        for sender in self.random.sample(self.senders, len(self.senders)):
            wanted = sender.sent + 3
            for _ in range(300):
                self.settle(everything=True)
                self.engine.end_turn()
                self.engine.seal()
                self.engine.attend_store()
                self.engine.end_turn()
                sender.send()
                self.turn(self.until_due())
                if sender.sent >= wanted:
                    break
            assert sender.sent >= wanted, sender.node.name

    def until_due(self) -> int:
        """A while at most."""
        due_ns = self.engine.next_deadline()
        return min(max(due_ns - self.now_ns, 0), 20 * MS) if due_ns else 20 * MS

    def rest(self) -> None:
        """Where nothing happens a turn comes when it is due, and makes that none is due at once."""
        early = 0
        for _ in range(50):
            due_ns = self.engine.next_deadline()
            if due_ns == 0:
                return
            early = early + 1 if due_ns <= self.now_ns else 0
            assert early < 5
            self.turn(max(due_ns - self.now_ns, 0))


@pytest.mark.parametrize("seed", range(16))
def test_whatever_comes_and_goes_no_promise_is_lost(seed: int) -> None:
    world = World(seed)
    for number in range(300):
        world.step()
        if number % 60 == 59:
            world.rest()
    world.serve_all()
    world.rest()
