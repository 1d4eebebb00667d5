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
        self.account: ProducerCredit = engine.open_producer(node, self, promised, budget)

    def grant(self, msgs: int) -> None:
        self.credit += msgs

    def revoke(self, msgs: int) -> None:
        self.credit -= msgs

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, bytes)
        self.engine.put(self.node, parked, constants.IS_DURABLE)

    def refuse(self, parked: object) -> None:
        """It was told; it doesn't send that one again."""

    def send(self) -> None:
        if self.credit == 0 if self.promised else len(self.account.parked) >= PARKED:
            return
        self.credit -= self.promised
        self.sent += 1
        code = self.engine.arrive(self.node, self.account, BODY, constants.IS_DURABLE, False)
        assert code != constants.OVERSENT
        if code == constants.PARK:
            self.engine.park(self.node, self.account, BODY, SIZE, False)


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
        found = self.engine.nodes.values()
        return [each for each in found if (topics if each.is_topic else queues)]

    def takers_of(self) -> list[Node]:
        return [*self.nodes(topics=False), *self.engine.subscriptions.values()]

    def create(self) -> None:
        if len(self.engine.nodes) < 8:
            self.made += 1
            kind = self.random.choice(["topic", "queue"])
            self.engine.create(f"{kind}{self.made}", self.settings(kind), b"{}")

    def delete(self) -> None:
        if self.engine.nodes and self.maybe(0.4):
            self.gone(self.engine.delete(self.random.choice(self.nodes()).name))

    def gone(self, node: Node) -> None:
        self.senders = [each for each in self.senders if each.node is not node]
        self.takers = [each for each in self.takers if each[0] is not node]

    def subscribe(self) -> None:
        topics = self.nodes(queues=False)
        if topics and len(self.engine.subscriptions) < 8:
            self.made += 1
            kept = b"{}" if self.maybe(0.6) else b""
            node = self.engine.subscribe(f"s{self.made}", "#", self.settings("queue"), kept)
            for topic in self.random.sample(topics, min(self.random.randrange(1, 3), len(topics))):
                self.engine.bind(topic, node)

    def unsubscribe(self) -> None:
        if self.engine.subscriptions:
            node = self.random.choice(list(self.engine.subscriptions.values()))
            self.engine.unsubscribe(node)
            self.gone(node)

    def bind(self) -> None:
        topics, takers = self.nodes(queues=False), self.takers_of()
        if topics and takers:
            topic, node = self.random.choice(topics), self.random.choice(takers)
            verb = self.engine.unbind if node in topic.subscriptions else self.engine.bind
            verb(topic, node)

    def bridge(self) -> None:
        if len(self.engine.nodes) > 1:
            source, target = self.random.sample(self.nodes(), 2)
            with contextlib.suppress(OperatorError):
                self.engine.bridging.add(source, target)

    def unbridge(self) -> None:
        if self.engine.bridging.all:
            self.engine.bridging.remove(self.random.choice(self.engine.bridging.all))

    def change(self) -> None:
        if every := list(self.engine.every_node()):
            node = self.random.choice(every)
            settings = self.settings("topic" if node.is_topic else "queue")
            self.engine.change(node, settings)
            if node.shelf is not None or (settings.durable and not node.is_subscription):
                self.engine.define(node, b"{}")

    def fail(self) -> None:
        self.store.state = self.random.choice([WRITING, WRITING, FULL, FAILED])
        self.engine.attend_store()

    def open(self) -> None:
        if self.engine.nodes and len(self.senders) < 12:
            node = self.random.choice(self.nodes())
            promised = self.maybe(0.8) and not self.engine.rejects_at_once(node)
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
                self.engine.acknowledge(node, taker.held.pop(0))

    def consume(self) -> None:
        if (nodes := self.takers_of()) and len(self.takers) < 8:
            self.take(self.random.choice(nodes))

    def take(self, node: Node) -> None:
        self.takers.append((node, Taker()))
        self.engine.add_consumer(*self.takers[-1])

    def leave(self) -> None:
        if self.takers and self.maybe(0.5):
            node, taker = self.takers.pop(self.random.randrange(len(self.takers)))
            for entry in taker.held:
                self.engine.requeue(node, entry, False)
            self.engine.remove_consumer(node, taker)

    def close(self) -> None:
        if self.senders and self.maybe(0.4):
            sender = self.senders.pop(self.random.randrange(len(self.senders)))
            self.engine.close_producer(sender.node, sender.account)

    def hold(self) -> None:
        if self.engine.nodes:
            node = self.random.choice(self.nodes())
            self.engine.hold(node, not node.gate.held)

    def wait(self) -> None:
        self.now_ns += 150 * MS

    def purge(self) -> None:
        if (nodes := self.takers_of()) and self.maybe(0.3):
            self.engine.purge(self.random.choice(nodes))

    # --- the laws

    def check(self) -> None:
        assert audit(self.engine).breaches == ()
        for node in self.engine.nodes.values():
            places = list(self.engine.bridging.takers(node))
            kept = sum(each.shelf is not None and not each.is_topic for each in places)
            if kept == 0:
                kept = int(self.store.state == FAILED or any(each.shelf is not None for each in places))
            assert node.ledger.takes(self.engine.disk, 1) == kept
            assert node.ledger.reservations.copies == max(sum(not each.is_topic for each in places), 1)
        disk = self.engine.disk
        if disk.promised_msgs > 0 and disk.depth_msgs + disk.promised_msgs > 1:
            assert disk.depth_bytes + disk.promised_bytes <= disk.stop_bytes

    def serve_all(self) -> None:
        """All is well again and everybody receives: whoever wants to send three messages can."""
        self.store.state = WRITING
        self.engine.attend_store()
        for node in self.nodes():
            self.engine.hold(node, False)
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
