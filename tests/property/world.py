"""A broker's engine with fake links: peers that hear late, consumers that settle when told to."""

from __future__ import annotations

from broker import constants
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.producer_credit import Port, ProducerCredit
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry

MS = 1_000_000
BODY = b"\x00\x53\x77\xa0"


class Producer(Port):
    """A peer that sends. It goes by the credit it has *heard* of, which may lag behind what was said."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.said = 0
        self.heard = 0
        self.highest = 0
        self.sent = 0
        self.accepted = 0
        self.refused = 0
        self.wishes = 0
        self.grants = 0
        self.last_credit_ns = world.now_ns
        self.account: ProducerCredit

    def grant(self, msgs: int) -> None:
        self.grants += 1
        self._say()

    def revoke(self, msgs: int) -> None:
        self._say()

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, bytes)
        assert self.world.engine.intake.put(self.world.node, parked, False) == constants.ACCEPTED
        self.accepted += 1

    def refuse(self, parked: object) -> None:
        self.refused += 1

    def _say(self) -> None:
        # What a flow frame says: delivery-count + link-credit, an absolute number.
        self.said = self.account.used + self.account.outstanding
        self.highest = max(self.highest, self.said)
        if self.account.outstanding:
            self.last_credit_ns = self.world.now_ns

    def hear(self) -> None:
        self.heard = self.said

    def send(self, size: int, settled: bool) -> None:
        assert self.sent < self.heard
        self.sent += 1
        engine, node = self.world.engine, self.world.node
        data = BODY + bytes(max(size - len(BODY), 0))
        code = engine.intake.arrive(node, self.account, data, False, settled)
        assert code != constants.OVERSENT
        if code == constants.PARK:
            engine.parking.park(node, self.account, data, len(data), settled)
        elif code == constants.ACCEPTED:
            self.accepted += 1
        else:
            self.refused += 1


class Taker(Consumer):
    """A consumer with so much credit; what it was sent stays unsettled until it is told to settle."""

    def __init__(self, credit: int) -> None:
        super().__init__()
        self.credit = credit
        self.held: list[Entry] = []
        self.seen: list[int] = []

    def capacity(self) -> int:
        return self.credit - len(self.held)

    def send(self, entry: Entry) -> None:
        assert len(self.held) < self.credit
        self.held.append(entry)
        self.seen.append(entry.seq)
        self.in_flight += 1


class World:
    """One queue with its producers and consumers, and the laws that hold after every step."""

    def __init__(self, **settings: object) -> None:
        self.now_ns = MS
        self.engine = Engine()
        self.node: Node
        self.producers: list[Producer] = []
        self.gone: list[Producer] = []
        self.takers: list[Taker] = []
        self.settings = dict(settings)
        self.engine.begin_turn(self.now_ns)
        self.node = self.engine.lifecycle.create("orders", resolve(self.settings, BrokerDefaults()))
        self.acknowledged = 0
        self.lowered = False

    def turn(self, ns: int = 0) -> None:
        self.engine.end_turn()
        self.now_ns += ns
        self.engine.begin_turn(self.now_ns)
        self.engine.end_turn()

    def open(self) -> Producer:
        producer = Producer(self, f"p{len(self.producers) + len(self.gone)}")
        producer.account = self.engine.producers.open(self.node, producer, True)
        self.producers.append(producer)
        return producer

    def close(self, producer: Producer) -> None:
        self.engine.producers.close(self.node, producer.account)
        self.producers.remove(producer)
        self.gone.append(producer)

    def consume(self, credit: int) -> Taker:
        taker = Taker(credit)
        self.takers.append(taker)
        self.engine.delivery.add_consumer(self.node, taker)
        return taker

    def settle(self, taker: Taker, count: int) -> None:
        for _ in range(min(count, len(taker.held))):
            entry = taker.held.pop(0)
            taker.in_flight -= 1
            self.acknowledged += 1
            self.engine.settlement.acknowledge(self.node, entry)

    def drop(self, taker: Taker) -> None:
        for entry in taker.held:
            self.engine.settlement.requeue(self.node, entry, True)
        taker.held.clear()
        taker.in_flight = 0
        self.takers.remove(taker)
        self.engine.delivery.remove_consumer(self.node, taker)

    def change(self, **settings: object) -> None:
        self.settings.update(settings)
        self.engine.configurator.change(self.node, resolve(self.settings, BrokerDefaults()))

    # --- the laws

    def check(self) -> None:
        self.check_conservation_of_credit()
        self.check_conservation_of_messages()
        self.check_zero_overshoot()
        self.check_gate()

    def check_conservation_of_credit(self) -> None:
        allocator, gate = self.node.allocator, self.node.gate
        accounts = allocator.accounts
        assert sum(a.outstanding for a in accounts) == allocator.promised_msgs == gate.promised_msgs
        assert sum(a.outstanding * a.reserve_bytes for a in accounts) == gate.promised_bytes
        for producer in self.producers:
            account = producer.account
            assert account.outstanding >= 0
            assert account.withdrawn >= 0
            assert account.granted == account.used + account.withdrawn + account.outstanding
            assert account.granted == producer.highest, producer.name
            assert account.used == producer.sent
            assert not (account.parked and account.outstanding), "parked messages go first"

    def check_conservation_of_messages(self) -> None:
        gate, queue = self.node.gate, self.node.queue
        entries = list(queue)
        assert gate.depth_msgs == len(entries) == queue.ready + queue.acquired
        assert gate.depth_bytes == sum(len(entry.data) for entry in entries)
        assert [entry.seq for entry in entries] == sorted(entry.seq for entry in entries)
        accepted = sum(p.accepted for p in self.producers + self.gone)
        assert accepted == self.acknowledged + gate.depth_msgs + self.node.dropped
        assert queue.acquired == sum(len(taker.held) for taker in self.takers)

    def check_zero_overshoot(self) -> None:
        gate = self.node.gate
        if not gate.enforced or gate.promised_msgs == 0:
            return
        if gate.stop_msgs:
            assert gate.depth_msgs + gate.promised_msgs <= gate.stop_msgs
        if gate.stop_bytes and gate.depth_msgs + gate.promised_msgs > 1:
            assert gate.depth_bytes + gate.promised_bytes <= gate.stop_bytes
        assert not gate.closed

    def check_gate(self) -> None:
        gate = self.node.gate
        if not gate.enforced:
            assert not gate.full
            return
        below_msgs = not gate.stop_msgs or gate.depth_msgs < gate.resume_msgs
        below_bytes = not gate.stop_bytes or gate.depth_bytes < gate.resume_bytes < gate.stop_bytes
        if below_msgs and below_bytes:
            assert not gate.full
        if gate.stop_msgs and gate.depth_msgs >= gate.stop_msgs:
            assert gate.full
