"""Random verbs over a priority queue whose room has a reserve; order and laws of credit after every step."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker import constants
from broker.codec.message import priority
from broker.engine.priorities import classify
from broker.queues.priority import PriorityQueue
from broker.queues.queue import Entry, Filter, Reader
from tests.examples import examples
from tests.property.world import BODY, MS, Producer, Taker, World

PRIORITIES = st.integers(0, 9)
COUNTS = st.integers(1, 60)
FROM = 5
pytestmark = pytest.mark.flow


def of_priority(level: int, size: int = 20) -> bytes:
    """A message of this priority."""
    data = b"\x00\x53\x70\xc0\x04\x02\x40\x50" + bytes((level,)) + BODY
    return data + bytes(max(size - len(data), 0))


class Sender(Producer):
    """A producer whose messages have priorities."""

    def send_one(self, level: int, size: int = 20) -> None:
        assert self.sent < self.heard
        self.sent += 1
        engine, node = self.world.engine, self.world.node
        data = of_priority(level, size)
        code = engine.intake.arrive(node, self.account, data, constants.HAS_HEADER, False)
        assert code != constants.OVERSENT
        if code == constants.PARK:
            engine.parking.park(node, self.account, data, len(data), False)
        elif code == constants.ACCEPTED:
            self.accepted += 1
        else:
            self.refused += 1


class Even(Filter):
    """Wants messages of even sizes."""

    def matches(self, data: bytes) -> bool:
        return len(data) % 2 == 0


class Judge(Taker):
    """A consumer that looks whether it was the turn of the message that it is sent."""

    def __init__(self, credit: int, world: PriorityWorld) -> None:
        super().__init__(credit)
        self.world = world

    def send(self, entry: Entry) -> None:
        level = priority(entry.data)
        kind = self.world.settings["priority"]
        for other in self.world.node.queue:
            if other.state != constants.READY or (self.reader is not None and len(other.data) % 2):
                continue
            if kind == "none" or priority(other.data) == level:
                assert other.seq > entry.seq, "order within a level"
            elif kind == "strict":
                assert priority(other.data) < level, "a higher one is ready"
        super().send(entry)


class PriorityWorld(World):
    """A queue with a reserve, its producers of two kinds and consumers that watch the order."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)
        self.browsers: list[Taker] = []

    def open_stating(self, stated: int) -> Sender:
        producer = Sender(self, f"p{len(self.producers) + len(self.gone)}")
        producer.account = self.engine.producers.open(self.node, producer, True)
        producer.account.stated = stated
        classify(self.node, producer.account)
        self.producers.append(producer)
        return producer

    def judge(self, credit: int, picky: bool, rank: int = 0) -> Judge:
        taker = Judge(credit, self)
        taker.priority = rank
        if picky:
            taker.reader = Reader(taker, Even())
        self.takers.append(taker)
        self.engine.delivery.add_consumer(self.node, taker)
        return taker

    def is_high(self, data: bytes) -> bool:
        return priority(data) >= FROM

    def check_conservation_of_messages(self) -> None:
        gate, queue = self.node.gate, self.node.queue
        entries = list(queue)
        assert gate.depth_msgs == len(entries) == queue.ready + queue.acquired
        assert queue.ready == sum(entry.state == constants.READY for entry in entries)
        if isinstance(queue, PriorityQueue):
            for number, level in enumerate(queue.levels):
                assert {priority(entry.data) for entry in level} <= {number}
                numbers = [entry.seq for entry in level]
                assert numbers == sorted(numbers)
        accepted = sum(p.accepted for p in self.producers + self.gone)
        assert accepted == self.acknowledged + gate.depth_msgs + self.node.dropped
        assert queue.acquired == sum(len(taker.held) for taker in self.takers)

    def check_reserve(self) -> None:
        """What is of low priority, and others' credit, never take the reserve; it is counted exactly."""
        gate = self.node.gate
        urgent = [each for each in self.node.allocator.accounts if each.urgent]
        assert gate.urgent_msgs == sum(each.outstanding for each in urgent)
        assert gate.urgent_bytes == sum(each.outstanding * each.reserve_bytes for each in urgent)
        assert self.node.allocator.urgents == len(urgent)
        low = [entry for entry in self.node.queue if not self.is_high(entry.data)]
        bulk = gate.promised_msgs - gate.urgent_msgs
        if gate.reserve_msgs and gate.stop_msgs > 1:
            assert len(low) + bulk <= gate.stop_msgs - gate.reserve_msgs


class PriorityWalk(RuleBasedStateMachine):
    """Order by level, conservation, zero overshoot, and the reserve."""

    @initialize(stop=st.integers(5, 100), part=st.integers(1, 60), kind=st.sampled_from(["strict", "fair"]))
    def begin(self, stop: int, part: int, kind: str) -> None:
        self.hears = True
        self.world = PriorityWorld(
            flow_stop_count=stop, flow_stop_size=0, priority=kind, priority_reserve=part, producer_window=50
        )
        for stated in (-1, -1, 5):
            self.world.open_stating(stated)
        self.world.turn()

    @rule(hears=st.booleans())
    def lag(self, hears: bool) -> None:
        """From now on producers hear of credit as it is said, or when they happen to."""
        self.hears = hears

    @rule(stated=st.sampled_from([-1, -1, 0, 4, 5, 9]))
    def open(self, stated: int) -> None:
        if len(self.world.producers) < 10:
            self.world.open_stating(stated)

    @precondition(lambda self: self.world.producers)
    @rule(which=st.integers(0, 9))
    def close(self, which: int) -> None:
        producers = self.world.producers
        self.world.close(producers[which % len(producers)])

    @precondition(lambda self: self.world.producers)
    @rule(which=st.integers(0, 9))
    def hear(self, which: int) -> None:
        producers = self.world.producers
        producers[which % len(producers)].hear()

    @precondition(lambda self: self.world.producers)
    @rule(
        which=st.integers(0, 9),
        count=COUNTS,
        level=PRIORITIES,
        size=st.integers(20, 23),
        keeps=st.booleans(),
        mixed=st.booleans(),
    )
    def send(self, which: int, count: int, level: int, size: int, keeps: bool, mixed: bool) -> None:
        producer = self.world.producers[which % len(self.world.producers)]
        assert isinstance(producer, Sender)
        if self.hears:
            producer.hear()
        if keeps:
            # As it says; else it may send lower ones.
            level = max(level, producer.account.stated)
        for _ in range(min(count, producer.heard - producer.sent)):
            producer.send_one(level, size)
            if mixed:
                level = max((level * 7 + 3) % 10, producer.account.stated if keeps else 0)

    @rule(credit=st.integers(1, 40), picky=st.booleans(), rank=st.integers(-1, 1))
    def attach(self, credit: int, picky: bool, rank: int) -> None:
        if len(self.world.takers) < 4:
            self.world.judge(credit, picky, rank)

    @precondition(lambda self: self.world.takers)
    @rule(which=st.integers(0, 3), count=COUNTS)
    def settle(self, which: int, count: int) -> None:
        takers = self.world.takers
        self.world.settle(takers[which % len(takers)], count)

    @precondition(lambda self: self.world.takers)
    @rule(which=st.integers(0, 3))
    def lose(self, which: int) -> None:
        takers = self.world.takers
        self.world.drop(takers[which % len(takers)])

    @rule(kind=st.sampled_from(["none", "strict", "fair"]))
    def order(self, kind: str) -> None:
        self.world.change(priority=kind)

    @rule()
    def purge(self) -> None:
        self.world.engine.actions.purge(self.world.node)

    @rule(ms=st.sampled_from([0, 1, 20, 110]))
    def turn(self, ms: int) -> None:
        self.world.turn(ms * MS)

    @invariant()
    def laws(self) -> None:
        if hasattr(self, "world"):
            self.world.check()
            self.world.check_reserve()


def test_order_and_laws_hold_on_random_walks() -> None:
    run_state_machine_as_test(
        PriorityWalk,
        settings=settings(
            max_examples=examples(120),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@settings(max_examples=examples(60), deadline=None)
@given(
    stop=st.integers(10, 300),
    part=st.integers(5, 60),
    bulk=st.integers(1, 8),
    urgent=st.integers(1, 6),
    rounds=st.integers(1, 4),
)
def test_a_high_producer_gets_credit_while_bulk_is_stopped(
    stop: int, part: int, bulk: int, urgent: int, rounds: int
) -> None:
    world = PriorityWorld(
        flow_stop_count=stop, flow_stop_size=0, priority="strict", priority_reserve=part, producer_window=50
    )
    senders = [world.open_stating(-1) for _ in range(bulk)]
    for _ in range(60):
        for sender in senders:
            sender.hear()
            while sender.sent < sender.heard:
                sender.send_one(4)
        world.turn(20 * MS)
    gate = world.node.gate
    assert gate.depth_msgs == stop - gate.reserve_msgs, "bulk fills all but the reserve"
    alarms = [world.open_stating(9) for _ in range(min(urgent, gate.reserve_msgs))]
    for _ in range(rounds):
        for _ in range(30):
            # 300 ms, in which nobody consumes and everybody else asks on.
            if all(each.account.outstanding for each in alarms):
                break
            world.turn(10 * MS)
        for alarm in alarms:
            assert alarm.account.outstanding > 0
            alarm.hear()
            alarm.send_one(9)
            world.check()
            world.check_reserve()
        taker = world.judge(len(alarms), False)
        world.turn()
        assert [priority(entry.data) for entry in taker.held] == [9] * len(alarms)
        world.settle(taker, len(alarms))
        world.drop(taker)
    assert all(sender.accepted == sender.sent for sender in senders)


@settings(max_examples=examples(40), deadline=None)
@given(stop=st.integers(20, 300), part=st.integers(10, 60), bulk=st.integers(0, 5), alarm=st.booleans())
def test_a_producer_of_mixed_priorities_gets_one_credit_of_the_reserve(
    stop: int, part: int, bulk: int, alarm: bool
) -> None:
    world = PriorityWorld(
        flow_stop_count=stop, flow_stop_size=0, priority="strict", priority_reserve=part, producer_window=50
    )
    plain = world.open_stating(-1)
    world.turn()
    plain.hear()
    plain.send_one(9)
    senders = [plain, *(world.open_stating(-1) for _ in range(bulk))]
    gate = world.node.gate
    for _ in range(200):
        if gate.urgent_msgs:
            break
        for sender in senders:
            sender.hear()
            while sender.sent < sender.heard and not plain.account.urgent:
                sender.send_one(4)
            world.check_reserve()
        world.turn(20 * MS)
    if gate.reserve_msgs < 4:
        return
    assert plain.account.outstanding == gate.urgent_msgs == 1
    depth = gate.depth_msgs
    plain.hear()
    plain.send_one(9 if alarm else 4)
    world.check()
    world.check_reserve()
    assert gate.depth_msgs == depth + alarm
    assert len(plain.account.parked) == (not alarm)
    for _ in range(30):
        world.turn(10 * MS)
        world.check()
        world.check_reserve()
    # Alarms may go on; bulk waits for what others give back, and is in order once there is room.
    assert plain.account.outstanding >= alarm
    taker = world.judge(stop, False)
    world.turn()
    while taker.held or gate.depth_msgs:
        world.settle(taker, len(taker.held))
        world.turn()
    # What is parked last may be let in with the next look at who waits.
    world.turn(20 * MS)
    assert plain.accepted == plain.sent
