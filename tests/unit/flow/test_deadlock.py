"""Circles that are deadlocks, and twenty that look like one and aren't (FLOW §7)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from broker.codec.message import scan
from tests.unit.deadlock_world import BODY, App, DeadlockWorld

pytestmark = pytest.mark.flow

# A message that expires in 50 s.
WITH_TTL = b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70\x00\x00\xc3\x50" + BODY


def figure_14(world: DeadlockWorld, **settings: object) -> tuple[App, App]:
    """TIBCO's: thread 1 consumes A and produces to B, thread 2 consumes B and produces to A; all is full."""
    a, b = world.full("A", **settings), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b)
    one.produce(b)
    two.produce(a)
    return one, two


# --- deadlocks


def test_two_threads_and_two_destinations(caplog: pytest.LogCaptureFixture) -> None:
    world = DeadlockWorld()
    with caplog.at_level(logging.WARNING):
        figure_14(world)
        world.run(1)
    [found] = world.standing
    assert sorted(found.nodes) == ["A", "B"]
    assert sorted(found.connections) == ["one of 'one' (host:one)", "two of 'two' (host:two)"]
    assert found.sentence == (
        "'A' waits for one of 'one' (host:one), which waits for 'B';"
        " 'B' waits for two of 'two' (host:two), which waits for 'A'"
    )
    # Others of the process may log meanwhile, as what is collected does.
    said = [each.getMessage() for each in caplog.records if each.name == "sluice.flow"]
    assert said == [f"deadlock: {found.sentence}"]


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_a_ring_is_found_within_a_second_and_once(count: int) -> None:
    world = DeadlockWorld()
    world.ring(count)
    world.run(30)
    assert world.events == ["deadlock"]
    when, _, details = world.told[0]
    assert when <= 1.0
    # In the order they wait.
    assert details["nodes"] == [f"q{i}" for i in range(count)]
    assert [list(view.nodes) for view in world.standing] == [details["nodes"]]
    assert len(world.standing[0].connections) == count


def test_the_same_session_on_both_sides() -> None:
    world = DeadlockWorld()
    node = world.full("A")
    app = world.app("both")
    app.consume(node)
    app.produce(node)
    world.run(1)
    [found] = world.standing
    assert (found.nodes, len(found.connections)) == (("A",), 1)
    assert "which waits for it as well" in found.sentence


def test_two_threads_on_one_connection() -> None:
    world = DeadlockWorld()
    a, b = world.full("A"), world.full("B")
    app = world.app("shared")
    for node in (a, b):
        app.consume(node)
    app.produce(b)
    app.produce(a)
    world.run(1)
    # Two circles with the connection in common are one deadlock.
    assert [sorted(view.nodes) for view in world.standing] == [["A", "B"]]


def test_two_rings_are_two_deadlocks() -> None:
    world = DeadlockWorld()
    figure_14(world)
    node = world.full("C")
    app = world.app("three")
    app.consume(node)
    app.produce(node)
    world.run(1)
    assert sorted(sorted(view.nodes) for view in world.standing) == [["A", "B"], ["C"]]
    assert world.events == ["deadlock", "deadlock"]


def test_another_consumer_does_not_help_where_all_messages_are_held() -> None:
    world = DeadlockWorld()
    one, _ = figure_14(world)
    assert len(one.takers[0].held) == 10
    world.app("idle").consume(world.engine.topology.node("A"))
    world.run(1)
    assert len(world.standing) == 1


def test_a_standby_of_a_single_active_consumer_does_not_help() -> None:
    world = DeadlockWorld()
    a, b = world.full("A", consumers="single_active"), world.full("B")
    one, two, standby = world.app("one"), world.app("two"), world.app("standby")
    one.consume(a, credit=3)
    standby.consume(a)
    two.consume(b)
    one.produce(b)
    two.produce(a)
    world.run(1)
    assert len(world.standing) == 1


def test_a_topic_whose_subscriber_publishes_to_it() -> None:
    world = DeadlockWorld()
    topic = world.model.nodes.create("topic", "news", {"flow_stop_count": 10, "flow_resume_count": 5})
    mine, other = world.subscribe(topic, "news/mine"), world.subscribe(topic, "news/other")
    app, healthy = world.app("both"), world.app("healthy")
    app.consume(mine)
    healthy.consume(other)
    app.produce(topic)
    healthy.settle(100)
    world.run(1)
    assert [view.nodes for view in world.standing] == [("news/mine",)]


def test_an_anonymous_relay_that_waits_for_an_outcome() -> None:
    world = DeadlockWorld()
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b)
    one.produce(b, promised=False)
    two.produce(a, promised=False)
    world.run(1)
    assert len(world.standing) == 1


def test_a_link_that_never_had_credit_and_says_what_it_has() -> None:
    world = DeadlockWorld()
    node = world.full("A")
    world.put(node, 10)
    app = world.app("late")
    app.consume(node)
    port = app.attach(node)
    world.run(3)
    assert world.standing == []
    port.said = 5
    world.run(1)
    assert len(world.standing) == 1


def test_a_circle_that_grows_is_not_said_again() -> None:
    world = DeadlockWorld()
    figure_14(world)
    world.run(1)
    c = world.full("C")
    third = world.app("three")
    third.consume(world.engine.topology.node("A"))
    world.put(c, 10)
    third.produce(c)
    world.run(3)
    assert world.events == ["deadlock"]


# --- how they end


def raise_threshold(world: DeadlockWorld, _one: App) -> None:
    world.model.nodes.update("A", {"flow_stop_count": 100})


def settle_one(_world: DeadlockWorld, one: App) -> None:
    one.settle(1)


def disconnect(_world: DeadlockWorld, one: App) -> None:
    one.close()


def purge(world: DeadlockWorld, one: App) -> None:
    one.takers[0].credit = 0
    one.settle(10)


def hold(world: DeadlockWorld, _one: App) -> None:
    world.model.operators.hold("A", True)


def delete(world: DeadlockWorld, _one: App) -> None:
    world.model.nodes.delete("A")


def switch_off(world: DeadlockWorld, _one: App) -> None:
    world.engine.topology.switch_flow(False)


@pytest.mark.parametrize("way", [raise_threshold, settle_one, disconnect, purge, hold, delete, switch_off])
def test_it_is_cleared_when_it_resolves(way: Callable[[DeadlockWorld, App], None]) -> None:
    world = DeadlockWorld()
    one, _ = figure_14(world)
    world.run(2)
    way(world, one)
    world.engine.end_turn()
    world.run(0.4)
    assert world.events == ["deadlock", "deadlock_cleared"]
    assert world.standing == []


def test_one_that_goes_on_after_an_operators_hold_is_said_again() -> None:
    world = DeadlockWorld()
    figure_14(world)
    world.run(1)
    world.model.operators.hold(">", True)
    world.run(1)
    world.model.operators.hold(">", False)
    world.run(1)
    assert world.events == ["deadlock", "deadlock_cleared", "deadlock"]


def test_a_pause_between_settlements_is_remembered() -> None:
    world = DeadlockWorld()
    one, _ = figure_14(world)
    for _ in range(20):
        world.run(3)
        one.settle(1)
    # Once, before anything was known of it.
    assert world.events.count("deadlock") == 1


def test_a_broker_that_stood_still_finds_nobody_guilty() -> None:
    world = DeadlockWorld()
    figure_14(world)
    world.run(0.2)
    world.now_s += 5
    world.run(0.1)
    assert world.standing == []


def test_what_stands_while_the_broker_stands_still_is_not_over() -> None:
    world = DeadlockWorld()
    one, _ = figure_14(world)
    world.run(1)
    world.now_s += 5
    world.run(2)
    assert world.events == ["deadlock"]
    # But who has moved meanwhile is waited for anew.
    world.now_s += 5
    one.settle(1)
    world.run(0.2)
    assert world.events == ["deadlock", "deadlock_cleared"]


def test_nothing_is_looked_at_where_no_circle_can_be() -> None:
    world = DeadlockWorld()
    node = world.full("A")
    world.app("consumer").consume(node, credit=1)
    world.app("producer").produce(node)
    world.run(1)
    assert node.gate.closed
    assert world.due_ns == 0


# --- what looks like one


def another_consumer(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, two, free = world.app("one"), world.app("two"), world.app("free")
    one.consume(a, credit=3)
    free.consume(a, credit=0)
    two.consume(b)
    one.produce(b)
    two.produce(a)


def a_third_that_is_slow(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, slow = world.app("one"), world.app("slow")
    one.consume(a)
    slow.consume(b)
    one.produce(b)
    world.app("source").produce(a)


def settles_slowly(world: DeadlockWorld) -> None:
    _, two = figure_14(world)
    world.put(world.engine.topology.node("B"), 100)
    for _ in range(30):
        world.run(0.4)
        two.settle(1)


def an_operators_stop(world: DeadlockWorld) -> None:
    figure_14(world)
    world.model.operators.hold("B", True)


def an_open_gate_without_credit(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a, credit=0)
    two.consume(b, credit=0)
    one.attach(b)
    two.attach(a)
    two.send(a, 9)
    one.send(b, 9)


def no_consumers(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one = world.app("one")
    one.consume(a)
    one.produce(b)
    world.app("two").produce(a)


def nothing_to_send(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b)
    world.put(a, 10)
    world.put(b, 10)
    one.attach(b)
    two.attach(a)


def idle_credit_taken_back(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b)
    busy = world.app("busy")
    for app, node in ((one, b), (two, a)):
        app.attach(node)
        app.send(node, 1)
        busy.attach(node)
    # What they used is remembered for a minute at most.
    world.run(70)
    for _ in range(10):
        for node in (a, b):
            busy.send(node)
        world.run(0.1)
    assert a.gate.closed
    assert b.gate.closed
    assert all(account.withdrawn for app in (one, two) for _, account, _ in app.links)


def a_ring_queue(world: DeadlockWorld) -> None:
    figure_14(world, overflow="ring", max_count=20, flow_stop_count=0, flow_resume_count=0)


def rejecting(world: DeadlockWorld) -> None:
    a, b = world.full("A", when_full="reject"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b)
    one.produce(b)
    two.produce(a, promised=False)


def rejecting_after(world: DeadlockWorld) -> None:
    a, b = world.full("A", when_full="reject_after", reject_after="60s"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b)
    one.produce(b)
    two.produce(a, promised=False)


def without_flow_control(world: DeadlockWorld) -> None:
    world.engine.topology.switch_flow(False)
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b)
    for app, node in ((one, b), (two, a)):
        app.attach(node)
        app.send(node, 50)


def unlimited(world: DeadlockWorld) -> None:
    a = world.full("A", flow_stop_count=0, flow_resume_count=0, flow_stop_size=0)
    b = world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b)
    one.produce(b)
    two.attach(a)
    two.send(a, 50)


def a_spent_budget(world: DeadlockWorld) -> None:
    world.engine.limit(2000, 0, 0)
    a, b = world.queue("A"), world.queue("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b)
    for _ in range(3):
        one.produce(b)
        two.produce(a)
    assert world.engine.depths.memory.room(1000) == 0


def subscribers_elsewhere(world: DeadlockWorld) -> None:
    topic = world.model.nodes.create("topic", "news", {"flow_stop_count": 10, "flow_resume_count": 5})
    mine, other = world.subscribe(topic, "news/mine"), world.subscribe(topic, "news/other")
    app = world.app("both")
    app.consume(mine, presettled=True)
    world.app("slow").consume(other)
    app.produce(topic)
    assert other.gate.closed


def presettled_consumers(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    takes = one.consume(a, credit=12, presettled=True)
    two.consume(b)
    one.produce(b)
    two.produce(a)
    for _ in range(20):
        world.run(0.4)
        takes.credit += 1
        world.engine.turn.mark_dirty(a)
        world.engine.end_turn()
        two.send(a)


def no_credit_but_not_blocked(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a)
    two.consume(b, credit=0)
    one.produce(b)
    world.app("source").produce(a)


def a_chain(world: DeadlockWorld) -> None:
    nodes = [world.full(f"q{i}") for i in range(5)]
    for i, node in enumerate(nodes):
        app = world.app(f"c{i}")
        app.consume(node)
        if i < 4:
            app.produce(nodes[i + 1])
    world.app("source").produce(nodes[0])


def browsing_only(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.browse(a)
    two.consume(b)
    one.produce(b)
    two.produce(a)


def expiring(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a, credit=2)
    two.consume(b)
    one.produce(b)
    world.engine.intake.put(a, WITH_TTL, scan(WITH_TTL))
    two.produce(a)


def being_moved(world: DeadlockWorld) -> None:
    a, b = world.full("A"), world.full("B")
    one, two = world.app("one"), world.app("two")
    one.consume(a, credit=2)
    two.consume(b, credit=2)
    one.produce(b)
    two.produce(a)
    target = world.full("C")
    world.put(target, 10)
    world.engine.actions.move(a, target, 8)
    world.engine.end_turn()


def an_active_consumer_that_is_free(world: DeadlockWorld) -> None:
    a, b = world.full("A", consumers="single_active"), world.full("B")
    active, one, two = world.app("active"), world.app("one"), world.app("two")
    active.consume(a)
    one.consume(a)
    two.consume(b)
    one.produce(b)
    two.produce(a)


def producers_that_left(world: DeadlockWorld) -> None:
    one, _ = figure_14(world)
    for node, account, _port in one.links:
        world.engine.producers.close(node, account)


def going_at_the_threshold(world: DeadlockWorld) -> None:
    one, two = figure_14(world, flow_resume_count=10)
    for _ in range(100):
        world.run(0.1)
        one.settle(1)
        two.send(world.engine.topology.node("A"))


def work_elsewhere_on_the_connection(world: DeadlockWorld) -> None:
    one, two = figure_14(world)
    other = world.full("other")
    world.put(other, 60)
    one.takers.insert(0, one.consume(other))
    for _ in range(50):
        world.run(0.2)
        one.settle(1)
    assert two.settled == 0


def shutting_down(world: DeadlockWorld) -> None:
    figure_14(world)
    world.engine.actions.wind_down()


# Those in which somebody does something all the time.
ALIVE = (settles_slowly, presettled_consumers, going_at_the_threshold, work_elsewhere_on_the_connection)
LOOK_ALIKES = [
    another_consumer,
    a_third_that_is_slow,
    settles_slowly,
    an_operators_stop,
    an_open_gate_without_credit,
    no_consumers,
    nothing_to_send,
    idle_credit_taken_back,
    a_ring_queue,
    rejecting,
    rejecting_after,
    without_flow_control,
    unlimited,
    a_spent_budget,
    subscribers_elsewhere,
    presettled_consumers,
    no_credit_but_not_blocked,
    a_chain,
    browsing_only,
    expiring,
    being_moved,
    an_active_consumer_that_is_free,
    producers_that_left,
    going_at_the_threshold,
    work_elsewhere_on_the_connection,
    shutting_down,
]


@pytest.mark.parametrize("scene", LOOK_ALIKES, ids=lambda scene: scene.__name__)
def test_no_false_alarm(scene: Callable[[DeadlockWorld], None]) -> None:
    world = DeadlockWorld()
    scene(world)
    if scene not in ALIVE:
        world.run(10)
    assert world.events == []


def test_there_are_twenty_at_least() -> None:
    assert len(set(LOOK_ALIKES)) >= 20


def test_pauses_of_a_minute_and_more_are_not_waited_for() -> None:
    world = DeadlockWorld()
    one, _ = figure_14(world)
    for _ in range(3):
        world.run(100)
        one.settle(1)
    assert world.events.count("deadlock") == 3
