"""A bound queue's room, which its own producers and its topics' publishers share (FLOW §2 rules 4 and 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker import constants
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.node import Node
from broker.flow.producer_credit import IDLE_NS, ProducerCredit
from tests.unit.manage_world import SECOND, World

pytestmark = pytest.mark.flow

SMALL = b"\x00\x53\x75\xa0\x01a"


class Bound(World):
    """Queue ``q``, bound to topic ``t``; time goes by in ``wait``."""

    def __init__(self, stop: int, **settings: object) -> None:
        super().__init__("policies:\n  - {match: t, kind: topic}\n")
        self.seconds = 0.0
        self.q = self.queue("q", flow_stop_count=stop, **settings)
        self.t = self.model.nodes.create("topic", "t")
        self.engine.topology.bind(self.t, self.q)
        self.engine.end_turn()

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.at(self.seconds)
        self.engine.end_turn()

    def send(self, node: Node, account: ProducerCredit, most: int) -> int:
        sent = 0
        while sent < most and account.outstanding > 0:
            self.engine.intake.arrive(node, account, SMALL, 0, False)
            self.engine.end_turn()
            sent += 1
        return sent

    def check(self) -> None:
        gate = self.q.gate
        assert gate.promised_msgs == sum(node.allocator.promised_msgs for node in (self.q, self.t))
        assert gate.depth_msgs + gate.promised_msgs <= gate.stop_msgs


@pytest.mark.parametrize(("first", "second"), ["qt", "tq"])
def test_what_lies_idle_at_one_end_is_lent_to_the_other(first: str, second: str) -> None:
    world = Bound(stop=100)
    idle, waiting = world.engine.topology.node(first), world.engine.topology.node(second)
    sitting = world.producer(idle)
    assert world.send(idle, sitting, 1) == 1
    assert world.q.gate.promised_msgs == 99
    busy = world.producer(waiting, "s2")
    assert busy.outstanding == 0
    for _ in range(5):
        world.wait(0.01)
    assert world.send(waiting, busy, 50) == 50
    world.check()


@pytest.mark.parametrize(("first", "second"), ["qt", "tq"])
def test_what_a_link_gives_back_when_it_goes_is_dealt_in_the_same_turn(first: str, second: str) -> None:
    world = Bound(stop=100)
    idle, waiting = world.engine.topology.node(first), world.engine.topology.node(second)
    going, staying = world.producer(idle), world.producer(waiting, "s2")
    assert (going.outstanding, staying.outstanding) == (100, 0)
    world.engine.producers.close(idle, going)
    world.engine.end_turn()
    assert staying.outstanding == 100
    world.check()


def test_what_comes_without_a_promise_takes_its_room_from_those_who_have_one() -> None:
    """A topic that nobody receives from heeds no threshold; the bound queue's own producers still do."""
    world = Bound(stop=20)
    assert world.t.settings is not None
    settings = replace(world.t.settings, enforce_flow="with_active_consumers")
    world.engine.configurator.change(world.t, settings)
    own, publisher = world.producer(world.q), world.producer(world.t, "s2")
    assert own.outstanding == 20
    for number in range(1, 16):
        assert world.send(world.t, publisher, 1) == 1
        assert own.outstanding == 20 - number
        assert world.q.gate.depth_msgs + world.q.gate.promised_msgs <= 20


def test_where_a_bound_queue_rejects_what_nobody_was_held_to_the_publisher_hears_it() -> None:
    """Its topic needs no room there while nobody receives; at its hard limit nothing is dropped."""
    world = Bound(stop=3, max_count=3, overflow="reject")
    assert world.t.settings is not None
    world.engine.configurator.change(world.t, replace(world.t.settings, enforce_flow="with_active_consumers"))
    publisher = world.producer(world.t, "s2")
    codes_heard = [world.engine.intake.arrive(world.t, publisher, SMALL, 0, False) for _ in range(5)]
    assert codes_heard == [constants.ACCEPTED] * 3 + [constants.REFUSED] * 2
    assert (world.q.gate.depth_msgs, world.q.dropped, world.t.refused) == (3, 0, 2)


def test_a_sleeper_of_two_topics_is_heeded_by_the_one_that_always_is() -> None:
    """A wildcard's subscription nobody receives from: one topic's publishers need room, others don't."""
    world = World()
    always, lax = world.model.nodes.create("topic", "always"), world.model.nodes.create("topic", "lax")
    assert lax.settings is not None
    world.engine.configurator.change(lax, replace(lax.settings, enforce_flow="with_active_consumers"))
    limits = BrokerDefaults()
    sleeper = world.engine.lifecycle.subscribe(
        "*/s", "*", resolve({"kind": "topic", "flow_stop_count": 5, "max_count": 20}, limits)
    )
    for topic in (always, lax):
        world.engine.topology.bind(topic, sleeper)
    world.engine.end_turn()
    held, free = world.producer(always), world.producer(lax, "s2")
    assert (held.outstanding, free.outstanding) == (5, 100)
    for sent in range(1, 11):
        assert world.engine.intake.arrive(lax, free, SMALL, 0, False) == constants.ACCEPTED
        world.engine.end_turn()
        assert held.outstanding == max(5 - sent, 0), "the room it was promised is taken"
    consumer = world.consumer(sleeper)
    world.engine.end_turn()
    assert (held.outstanding, free.outstanding) == (0, 0), "somebody receives: it holds both"
    for entry in list(consumer.held):
        world.engine.settlement.acknowledge(sleeper, entry)
    world.engine.end_turn()
    assert held.outstanding + free.outstanding == 5


def test_two_busy_ends_both_get_their_part() -> None:
    """Whoever is first to be dealt what a consumer lets go of changes; neither starves, window or not."""
    for order in (("q", "t"), ("t", "q")):
        world = Bound(stop=10)
        nodes = [world.engine.topology.node(name) for name in order]
        accounts = [world.producer(node, node.name) for node in nodes]
        consumer = world.consumer(world.q)
        sent = [0, 0]
        for _ in range(1000):
            for place, (node, account) in enumerate(zip(nodes, accounts, strict=True)):
                sent[place] += world.send(node, account, 100)
            for entry in consumer.held[:3]:
                world.engine.settlement.acknowledge(world.q, entry)
            del consumer.held[:3]
            world.wait(0.002)
            world.check()
        assert min(sent) >= 750, (order, sent)


def test_behind_a_stopped_gate_nobody_is_asked_again_and_again() -> None:
    """Credit can't be lent where there is none: who waits for a full queue costs nothing."""
    world = Bound(stop=5)
    own, publisher = world.producer(world.q), world.producer(world.t, "s2")
    world.send(world.q, own, 5)
    assert world.q.gate.closed
    assert publisher.waiting
    world.wait(1)
    assert world.engine.next_deadline() == 0


def test_a_queue_of_its_own_borrows_from_nobody() -> None:
    world = World()
    node = world.queue("q", flow_stop_count=10)
    world.producer(node)
    world.producer(node, "s2")
    assert not world.engine.credit.borrowing
    assert world.engine.next_deadline() - world.engine.turn.now_ns <= IDLE_NS < SECOND
