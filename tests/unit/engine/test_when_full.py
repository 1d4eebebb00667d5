"""`when_full` in the engine: who waits for how long, and what is refused at once (FLOW §2 rules 5 and 7)."""

from __future__ import annotations

import gc
import weakref

import pytest

from broker import constants
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.node import Node
from broker.flow.producer_credit import Port, ProducerCredit
from tests.unit.manage_world import World

pytestmark = pytest.mark.flow

SMALL = b"\x00\x53\x75\xa0\x01a"


class Parked:
    """What a link hands to ``park``: told apart by identity, and gone when nobody has it any more."""


class Sending(Port):
    """A link on credit that promises no room, as at a rejecting node."""

    def __init__(self, world: World, node: Node) -> None:
        self.world = world
        self.node = node
        self.taken = 0
        self.refused = 0
        self.account: ProducerCredit = world.engine.producers.open(node, self, False)

    def grant(self, msgs: int) -> None:
        raise AssertionError("nothing is promised here")

    def admit(self, parked: object, size: int) -> None:
        self.taken += self.world.engine.intake.put(self.node, SMALL, 0) == constants.ACCEPTED

    def refuse(self, parked: object) -> None:
        self.refused += 1

    def send(self, count: int, settled: bool = False) -> weakref.ref[Parked] | None:
        """So many messages; the last one that was parked."""
        last = None
        for _ in range(count):
            code = self.world.engine.intake.arrive(self.node, self.account, SMALL, 0, settled)
            if code == constants.PARK:
                parked = Parked()
                last = weakref.ref(parked)
                self.world.engine.parking.park(self.node, self.account, parked, len(SMALL), settled)
            self.taken += code == constants.ACCEPTED
            self.refused += code == constants.REFUSED
        self.world.engine.end_turn()
        return last

    def outcomes(self) -> tuple[int, int]:
        return self.taken, self.refused


def change(world: World, queue: Node, **settings: object) -> None:
    """All its settings, at runtime."""
    world.engine.configurator.change(queue, resolve({"flow_stop_count": 1, **settings}, BrokerDefaults()))
    world.engine.end_turn()


def wait(world: World, seconds: float) -> None:
    """Turn after turn as the engine asks for them."""
    end = world.engine.turn.now_ns + int(seconds * 1e9)
    while world.engine.turn.now_ns < end:
        due = world.engine.next_deadline()
        world.engine.begin_turn(min(max(due, world.engine.turn.now_ns + 1_000_000), end) if due else end)
        world.engine.end_turn()


# --- reject


def test_what_somebody_idle_was_promised_makes_nobody_s_send_fail() -> None:
    world = World("policies:\n  - {match: t, kind: topic}\n")
    queue = world.queue("q", flow_stop_count=20, when_full="reject")
    topic = world.model.nodes.create("topic", "t")
    world.engine.topology.bind(topic, queue)
    publisher = world.producer(topic)
    assert publisher.outstanding == 20
    link = Sending(world, queue)
    link.send(5)
    wait(world, 0.05)
    assert link.outcomes() == (5, 0)
    assert queue.gate.depth_msgs + queue.gate.promised_msgs <= 20
    link.send(15)
    wait(world, 0.05)
    assert link.outcomes() == (20, 0)
    link.send(1)
    assert link.outcomes() == (20, 1), "it is full now, which is told at once"


def test_a_queue_that_rejects_from_now_on_takes_back_what_lies_idle() -> None:
    world = World()
    queue = world.queue("q", flow_stop_count=10)
    assert world.producer(queue).outstanding == 10
    world.model.nodes.update("q", {"when_full": "reject"})
    link = Sending(world, queue)
    link.send(10)
    wait(world, 0.05)
    assert link.outcomes() == (10, 0)


def test_what_a_busy_link_holds_is_waited_for_no_longer_than_a_moment() -> None:
    world = World("policies:\n  - {match: t, kind: topic}\n")
    queue = world.queue("q", flow_stop_count=20, when_full="reject")
    topic = world.model.nodes.create("topic", "t")
    world.engine.topology.bind(topic, queue)
    publisher = world.producer(topic)
    link = Sending(world, queue)
    link.send(1)
    for _ in range(12):
        world.engine.begin_turn(world.engine.turn.now_ns + 4_000_000)
        if publisher.outstanding:
            world.engine.intake.arrive(topic, publisher, SMALL, 0, False)
        world.engine.end_turn()
    assert link.outcomes() == (0, 1)
    assert queue.allocator.parked_msgs == 0
    assert not link.account.waiting


# --- reject_after


def test_nothing_is_kept_of_a_message_that_was_taken_in_time() -> None:
    world = World()
    queue = world.queue("q", flow_stop_count=1, reject_after="60s")
    link = Sending(world, queue)
    link.send(1)
    parked = link.send(1)
    assert parked is not None
    assert parked() is not None
    consumer = world.consumer(queue)
    world.engine.settlement.acknowledge(queue, consumer.held.pop())
    world.engine.end_turn()
    gc.collect()
    assert link.outcomes() == (2, 0)
    assert parked() is None


def test_nothing_is_kept_of_a_link_that_is_gone() -> None:
    world = World()
    queue = world.queue("q", flow_stop_count=1, reject_after="60s")
    link = Sending(world, queue)
    parked = link.send(2)
    assert parked is not None
    world.engine.producers.close(queue, link.account)
    del link
    gc.collect()
    assert parked() is None
    assert not queue.timed_parked


@pytest.mark.parametrize(
    ("setting", "after"), [({"reject_after": "1s"}, 1.0), ({"when_full": "reject"}, 0.02)]
)
def test_a_shorter_wait_holds_for_those_who_wait_already(setting: dict[str, object], after: float) -> None:
    world = World()
    queue = world.queue("q", flow_stop_count=1, reject_after="30s")
    early, late = Sending(world, queue), Sending(world, queue)
    early.send(2)
    change(world, queue, **setting)
    wait(world, after / 2)
    if "reject_after" in setting:
        late.send(1)
    wait(world, after / 2)
    assert early.outcomes() == (1, 1)
    wait(world, after / 2 + 0.01)
    assert late.outcomes() == (0, 1 if "reject_after" in setting else 0)
    assert queue.allocator.parked_msgs == 0
    assert queue.refused == early.refused + late.refused


def test_a_longer_wait_and_none_at_all_hold_for_them_too() -> None:
    world = World()
    queue = world.queue("q", flow_stop_count=1, reject_after="1s")
    link = Sending(world, queue)
    link.send(2)
    change(world, queue, reject_after="3s")
    wait(world, 2)
    assert link.outcomes() == (1, 0)
    change(world, queue, when_full="block")
    wait(world, 60)
    assert link.outcomes() == (1, 0)
    change(world, queue, reject_after="3s")
    wait(world, 0.01)
    assert link.outcomes() == (1, 1)


def test_a_pre_settled_message_waits_as_long_as_it_takes() -> None:
    world = World()
    queue = world.queue("q", flow_stop_count=1, reject_after="1s")
    link = Sending(world, queue)
    link.send(1)
    link.send(1, settled=True)
    link.send(1)
    wait(world, 5)
    assert link.outcomes() == (1, 1)
    assert queue.allocator.parked_msgs == 1
