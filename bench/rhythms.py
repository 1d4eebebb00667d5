"""Producers in all rhythms at one queue, in simulated time: who got how much, with the broker's own engine.

A producer sends what is due whenever its timer goes off; what its credit didn't allow it sends as soon as
there is some, or at the next tick. It hears of its credit late, and its messages come late, by half a round
trip each. Nothing here waits: an hour passes in a few seconds, and a run with the same numbers ends the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from broker import constants
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.gate import Gate
from broker.flow.producer_credit import Port, ProducerCredit
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry
from broker.store.memory import MemoryStore

MS = 1_000_000
BODY = b"\x00\x53\x77\xa0"


@dataclass(frozen=True)
class Rhythm:
    """Messages a second, sent every ``tick_ms`` (0: at once), from ``start_ms`` to ``end_ms`` (0: for ever).

    What credit didn't allow is sent as soon as there is some, or by a ``timed`` one at its next tick.
    """

    per_second: float
    tick_ms: float
    timed: bool = False
    start_ms: float = 0
    end_ms: float = 0


@dataclass
class Cell:
    """One run: its producers, its queue's settings, its consumer's messages a second (0: all at once).

    With a ``budget`` of so many messages ``room`` says where they may be: in the broker's ``memory`` or on
    its ``disk``, over so many ``queues``, or under way on one ``connection``. At a ``topic`` the last of its
    three subscriptions has that consumer, the others take all at once. ``churn_ms`` is how long a link lives
    until it comes again; ``sizes`` are those of the producers' messages, in turn, where they differ.
    """

    rhythms: Sequence[Rhythm]
    settings: dict[str, object]
    drain: float = 0
    round_trip_ms: float = 1
    seconds: float = 15
    size: int = 100
    name: str = ""
    room: str = "queue"
    budget: int = 0
    queues: int = 1
    churn_ms: float = 0
    sizes: Sequence[int] = ()


@dataclass
class Outcome:
    """What each had due and what came of it; how often depth passed the threshold; the frames it took."""

    wanted: list[float]
    sent: list[int]
    share: list[float]
    overshoot: int
    frames: int
    late: int
    longest_ms: list[float] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """The least part that somebody got of its max-min share."""
        return min(
            (sent / share for sent, share in zip(self.sent, self.share, strict=True) if share), default=1.0
        )

    @property
    def jain(self) -> float:
        """Jain's index over what each got of its max-min share."""
        parts = self._parts()
        return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts))

    def _parts(self) -> list[float]:
        return [sent / share for sent, share in zip(self.sent, self.share, strict=True) if share]


class _Producer(Port):
    def __init__(self, run: _Run, number: int, rhythm: Rhythm) -> None:
        self.run = run
        self.node = run.nodes[number % len(run.nodes)]
        self.rhythm = rhythm
        sizes = run.cell.sizes or (run.cell.size,)
        self.data = BODY + bytes(sizes[number % len(sizes)] - len(BODY))
        self.said = self.heard = self.used = self.sent = self.arrived = 0
        self.due = 0.0
        self.backlog = 0
        self.since_ms = -1.0
        self.longest_ms = 0.0
        self.links = 0
        self.account: ProducerCredit

    def attach(self) -> None:
        """Begin with a new link: what was heard of the one before, and is under way on it, is void."""
        run = self.run
        if self.links:
            run.engine.producers.close(self.node, self.account)
            self.since_ms = run.now_ms if self.backlog and self.since_ms < 0 else self.since_ms
        self.links += 1
        self.said = self.heard = self.used = 0
        self.account = run.engine.producers.open(self.node, self, True, run.budget)

    def grant(self, msgs: int) -> None:
        self._say()

    def revoke(self, msgs: int) -> None:
        self._say()

    def admit(self, parked: object, size: int) -> None:
        assert isinstance(parked, bytes)
        self.run.engine.intake.put(self.node, parked, self.run.bits)
        self.arrived += 1

    def _say(self) -> None:
        # A frame says what its credit is at the end of the turn, however often it changed.
        self.run.unsaid[self] = None

    def say(self) -> None:
        run = self.run
        run.frames += 1
        said = self.account.used + self.account.outstanding
        link = self.links
        run.later(run.trip_ms, lambda: self.hear(said, link))

    def hear(self, said: int, link: int) -> None:
        if link != self.links:
            return
        self.heard = said
        if not self.rhythm.timed:
            self.send()

    def tick(self) -> None:
        rhythm, run = self.rhythm, self.run
        now_ms = run.now_ms
        step = rhythm.tick_ms or 1.0
        self.due += rhythm.per_second * step / 1000
        whole = int(self.due)
        self.due -= whole
        self.backlog += whole
        if not rhythm.end_ms or now_ms + step < rhythm.end_ms:
            run.later(step, self.tick)
        self.send()

    def send(self) -> None:
        run = self.run
        count = min(self.backlog, self.heard - self.used)
        if count > 0:
            link = self.links
            self.backlog -= count
            self.used += count
            self.sent += count
            run.later(run.trip_ms, lambda: self.come(count, link))
            if self.since_ms >= 0:
                self.longest_ms = max(self.longest_ms, run.now_ms - self.since_ms)
            self.since_ms = run.now_ms if self.backlog else -1.0
        elif self.backlog and self.since_ms < 0:
            self.since_ms = run.now_ms

    def come(self, count: int, link: int) -> None:
        run = self.run
        if link != self.links:
            # They went with their link: its client sends them again.
            self.sent -= count
            self.backlog += count
            return
        for _ in range(count):
            code = run.engine.intake.arrive(self.node, self.account, self.data, run.bits, False)
            assert code != constants.OVERSENT
            if code == constants.PARK:
                run.late += 1
                run.engine.parking.park(self.node, self.account, self.data, len(self.data), False)
            else:
                self.arrived += 1


class _Consumer(Consumer):
    """Settles what it has had for a round trip, or what its messages a second allow."""

    def __init__(self, run: _Run, node: Node, rate: float) -> None:
        super().__init__()
        self.run = run
        self.node = node
        self.rate = rate
        self.most = 1_000_000 if rate == 0 else 100
        self.held: list[Entry] = []
        self.allowance = 0.0
        self.settles = False
        run.engine.delivery.add_consumer(node, self)

    def capacity(self) -> int:
        return self.most - len(self.held)

    def send(self, entry: Entry) -> None:
        self.held.append(entry)
        self.in_flight += 1

    def pace_ms(self) -> float:
        return max(1000 / self.rate, 1.0) if self.rate else 1.0

    def look(self) -> None:
        if self.held and not self.settles:
            self.settles = True
            self.run.later(self.pace_ms(), self.settle)

    def settle(self) -> None:
        count = len(self.held)
        if self.rate:
            self.allowance = min(self.allowance + self.rate * self.pace_ms() / 1000, max(self.rate / 10, 1))
            count = min(count, int(self.allowance))
            self.allowance -= count
        for entry in self.held[:count]:
            self.in_flight -= 1
            self.run.engine.settlement.acknowledge(self.node, entry)
        del self.held[:count]
        self.settles = False


class _Run:
    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.trip_ms = cell.round_trip_ms / 2
        self.now_ms = 1.0
        self.frames = self.late = self.overshoot = 0
        self.unsaid: dict[_Producer, None] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        on_disk = cell.room == "disk"
        self.bits = constants.IS_DURABLE if on_disk else 0
        self.engine = Engine(True, MemoryStore() if on_disk else None)
        self.engine.begin_turn(MS)
        self.budget: ConnectionBudget | None = None
        held = cell.budget * (cell.size + constants.HELD_BYTES)
        if cell.room == "memory":
            self.engine.limit(held, 0)
        elif on_disk:
            self.engine.limit(0, cell.budget * cell.size)
        elif cell.room == "connection":
            self.budget = ConnectionBudget(held)
        self.nodes = self._make_nodes()
        taken = self.nodes if cell.room != "topic" else self.nodes[0].subscriptions
        rates = [cell.drain / len(taken)] * len(taken)
        if cell.room == "topic":
            rates = [0.0] * (len(taken) - 1) + [cell.drain]
        self.gates = [each.gate for each in taken] + [self.engine.depths.memory, self.engine.depths.disk]
        if self.budget is not None:
            self.gates.append(self.budget.gate)
        self.consumers = [_Consumer(self, node, rate) for node, rate in zip(taken, rates, strict=True)]
        self.producers = [_Producer(self, number, rhythm) for number, rhythm in enumerate(cell.rhythms)]
        for number, each in enumerate(self.producers):
            each.attach()
            part = (number % 7 + 1) / 7
            self.later(each.rhythm.start_ms + (each.rhythm.tick_ms or 1.0) * part, each.tick)
            if cell.churn_ms:
                self.later(cell.churn_ms * (number + 1) / len(self.producers), partial(self.churn, each))

    def _make_nodes(self) -> list[Node]:
        cell = self.cell
        settings = resolve(cell.settings, BrokerDefaults())
        if cell.room == "topic":
            topic = self.engine.lifecycle.create("t", replace(settings, kind="topic"))
            for number in range(3):
                self.engine.topology.bind(
                    topic, self.engine.lifecycle.subscribe(f"t/{number}", "t", settings)
                )
            return [topic]
        durable = replace(settings, durable=cell.room == "disk")
        names = [f"q{number}" for number in range(cell.queues)]
        return [
            self.engine.lifecycle.create(name, durable, b"{}" if durable.durable else b"") for name in names
        ]

    def later(self, ms: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + ms, self._count, what))

    def churn(self, producer: _Producer) -> None:
        producer.attach()
        self.later(self.cell.churn_ms, lambda: self.churn(producer))

    def _most_at_once(self) -> list[float]:
        """The most that each may send when its timer goes off: its share of the threshold."""
        gate, rhythms = self.gates[0], self.cell.rhythms
        stops = (gate.stop_msgs, gate.stop_bytes / self.cell.size, self.cell.budget)
        stop = min(each for each in stops if each)
        bursts = [each.per_second * (each.tick_ms or 1.0) / 1000 for each in rhythms]
        asked = [burst if each.timed else stop for each, burst in zip(rhythms, bursts, strict=True)]
        held = fill(stop, asked)
        return [part if each.timed else float("inf") for each, part in zip(rhythms, held, strict=True)]

    def go(self) -> Outcome:
        end_ms = self.cell.seconds * 1000
        while self.now_ms < end_ms:
            deadline = self.engine.next_deadline()
            upto = self._events[0][0] if self._events else end_ms
            if deadline:
                # Not before it is due, whatever a float makes of it.
                upto = min(upto, max(deadline / MS + 1e-5, self.now_ms))
            self.now_ms = upto
            self.engine.begin_turn(int(self.now_ms * MS))
            while self._events and self._events[0][0] <= self.now_ms:
                heapq.heappop(self._events)[2]()
            self.engine.end_turn()
            if self.bits:
                self.engine.seal()
                self.engine.attend_store()
                self.engine.end_turn()
            for producer in self.unsaid:
                producer.say()
            self.unsaid.clear()
            for consumer in self.consumers:
                consumer.look()
            for gate in self.gates:
                self.overshoot = max(self.overshoot, _beyond(gate, self.cell.size))
        wanted = [_due(each.rhythm, self.cell.seconds) for each in self.producers]
        sent = [each.sent for each in self.producers]
        could = [
            min(want, most * _ticks(each.rhythm, self.cell.seconds))
            for want, most, each in zip(wanted, self._most_at_once(), self.producers, strict=True)
        ]
        waits = [
            max(each.longest_ms, self.now_ms - each.since_ms if each.since_ms >= 0 else 0)
            for each in self.producers
        ]
        shares = self._shares(could)
        return Outcome(wanted, sent, shares, self.overshoot, self.frames, self.late, waits)

    def _shares(self, could: Sequence[float]) -> list[float]:
        """Max-min parts of what each node's consumers take."""
        shares = [0.0] * len(could)
        total = self.cell.drain / len(self.nodes) * self.cell.seconds if self.cell.drain else float("inf")
        for node in self.nodes:
            there = [i for i, each in enumerate(self.producers) if each.node is node]
            for i, share in zip(there, fill(total, [could[i] for i in there]), strict=True):
                shares[i] = share
        return shares


def _beyond(gate: Gate, size: int) -> int:
    """How many messages it has taken in or promised beyond its threshold; late ones wait outside."""
    beyond = gate.depth_msgs + gate.promised_msgs - gate.stop_msgs if gate.stop_msgs else 0
    nbytes = (
        gate.depth_bytes - gate.parked_bytes + gate.promised_bytes - gate.stop_bytes if gate.stop_bytes else 0
    )
    return max(beyond, -(-nbytes // size), 0)


def _ticks(rhythm: Rhythm, seconds: float) -> float:
    """How often its timer went off."""
    return _due(replace(rhythm, per_second=1000 / (rhythm.tick_ms or 1.0)), seconds)


def _due(rhythm: Rhythm, seconds: float) -> float:
    """What its timer asked for; the last tick's isn't missed by who had no time for it."""
    step = rhythm.tick_ms or 1.0
    end_ms = min(rhythm.end_ms or seconds * 1000, seconds * 1000)
    return max(rhythm.per_second * (end_ms - rhythm.start_ms - step) / 1000, 0.0)


def fill(total: float, wants: Sequence[float]) -> list[float]:
    """Max-min shares of a total."""
    shares = [0.0] * len(wants)
    left, rest = total, sorted(range(len(wants)), key=lambda i: wants[i])
    for position, i in enumerate(rest):
        shares[i] = min(wants[i], left / (len(rest) - position))
        left -= shares[i]
    return shares


def play(cell: Cell) -> Outcome:
    """Run it."""
    return _Run(cell).go()
