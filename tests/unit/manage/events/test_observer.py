"""What the watch tells of gates and counters; every event there is one of the schema."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from broker import constants
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.flow.producer_credit import Port
from broker.manage.events.history import BACKLOG
from broker.manage.events.observer import (
    MOST_CHANGES,
    MOST_PENDING,
    NODES_AT_ONCE,
    TOPIC,
    Event,
    NodeObserver,
)
from broker.manage.events.schema import KINDS, event_schema, reference
from broker.manage.events.writer import EventWriter, message_of
from tests.unit.manage_world import BEGIN, SECOND, World

pytestmark = pytest.mark.flow

DOCS = Path(__file__).parents[4] / "docs" / "observability.md"
VALID = Draft202012Validator(event_schema())


class Watched(World):
    """A world whose events are collected, each checked against the schema."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = 0
        self.watch = NodeObserver(self.engine, self._arm, self.model.holds.holding)
        self.watch.listen()
        self.teller = EventWriter(0, lambda messages: None)

    def _arm(self) -> None:
        self.armed += 1

    def told(self) -> list[dict[str, Any]]:
        """All since the last time, as a reader has them."""
        found = [json.loads(self.teller.line(event)) for event in self.watch.take()]
        for event in found:
            VALID.validate(event)
        return found

    def look(self, seconds: float) -> list[dict[str, Any]]:
        """What a look at that time adds."""
        self.at(seconds)
        while self.watch.look(self.engine.turn.now_ns):
            pass
        return self.told()


@pytest.fixture
def world() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.teller.stop(5)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def only(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    [found] = [event for event in events if event["event"] == kind]
    return found


def holds(found: Mapping[str, Any], /, **fields: object) -> bool:
    """Whether an event has these fields."""
    return {name: found.get(name) for name in fields} == fields


# --- gates


def test_a_gate_tells_what_stopped_it_and_how_long_it_was_stopped(world: Watched) -> None:
    queue = world.queue(flow_stop_count=4, flow_resume_count=2)
    consumer = world.consumer(queue, credit=0)
    world.put(queue, 4)
    [stopped] = world.told()
    assert holds(
        stopped, event="stopped", node="orders", reason="count", depth_msgs=4, stop_msgs=4, resume_msgs=2
    )
    assert stopped["stopped_count"] == 1
    world.at(2)
    consumer.credit = 3
    world.engine.turn.mark_dirty(queue)
    world.engine.end_turn()
    for entry in consumer.held:
        world.engine.settlement.acknowledge(queue, entry)
    [opened] = world.told()
    assert holds(opened, event="opened", reason="count", depth_msgs=1, stopped_ms=2000, stopped_total_ms=2000)
    assert opened["mono_ns"] == BEGIN + 2 * SECOND


def test_a_gate_that_bytes_stopped_says_so(world: Watched) -> None:
    queue = world.queue(flow_stop_size=100, flow_resume_size=50)
    world.put(queue, 10, size=10)
    assert holds(only(world.told(), "stopped"), reason="bytes", stop_bytes=100)


def test_an_operators_gate_names_the_pattern(world: Watched) -> None:
    world.queue("orders.eu")
    world.queue("stock")
    world.model.operators.hold("orders.>", True)
    events = world.told()
    assert kinds(events) == ["stopped", "operator"]
    assert holds(events[0], node="orders.eu", reason="operator", held_by="orders.>")
    assert holds(events[1], node=None, action="stop", target="orders.>", nodes=1)
    world.model.operators.hold("orders.eu", False)
    assert [(event["event"], event.get("action")) for event in world.told()] == [
        ("opened", None),
        ("operator", "start"),
    ]


def test_a_node_that_comes_under_a_hold_is_told_as_stopped(world: Watched) -> None:
    world.model.operators.hold("orders.>", True)
    world.told()
    world.queue("orders.new")
    assert holds(only(world.told(), "stopped"), node="orders.new", reason="operator", held_by="orders.>")


def test_a_budget_has_no_node(world: Watched) -> None:
    queue = world.queue(flow_control=False)
    world.engine.limit(1000, 0)
    world.put(queue, 10, size=10)
    stopped = only(world.told(), "stopped")
    assert holds(stopped, node=None, reason="budget", budget="memory_limit", stop_bytes=1000)
    world.model.messages.purge("orders")
    world.engine.end_turn()
    assert holds(only(world.told(), "opened"), node=None, budget="memory_limit", depth_bytes=0)


def test_a_shutdown_is_no_operators_hand(world: Watched) -> None:
    world.queue()
    world.engine.actions.wind_down()
    assert holds(only(world.told(), "stopped"), reason="shutdown")


def test_a_gate_that_flaps_is_told_of_now_and_then_and_the_last_word_is_true(world: Watched) -> None:
    queue = world.queue(flow_stop_count=1, flow_resume_count=1)
    for _ in range(100):
        world.put(queue, 1)
        world.engine.actions.purge(queue)
    world.put(queue, 1)
    events = world.told()
    assert len(events) == MOST_CHANGES
    assert events[-1]["event"] == "opened"
    later = world.look(1)
    assert later[0]["event"] == "stopped"
    assert holds(later[0], skipped=201 - MOST_CHANGES, stopped_count=101)
    assert only(later, "sample")["state"] == "stopped"
    # A new interval begins with a clean sheet.
    world.engine.actions.purge(queue)
    assert kinds(world.told()) == ["opened"]


def test_what_is_stopped_when_the_watch_begins_is_told(world: Watched) -> None:
    world.put(world.queue(flow_stop_count=2), 2)
    late = NodeObserver(world.engine, lambda: None, lambda name: "")
    late.listen()
    assert [(event[1], event[3]) for event in late.take()] == [("stopped", "orders")]


# --- counters


def test_refused_dropped_and_parked_messages_are_counted_once_an_interval(world: Watched) -> None:
    full = world.queue("full", max_count=2, flow_control=False, overflow="reject")
    ring = world.queue("ring", max_count=2, overflow="ring")
    world.put(full, 5)
    world.put(ring, 6)
    parking = world.queue("parking", flow_stop_count=1)
    account = world.engine.producers.open(parking, _Silent(), False)
    for number in range(4):
        if world.engine.intake.arrive(parking, account, bytes(10), 0, False) == constants.PARK:
            world.engine.parking.park(parking, account, number, 10, False)
    events = [event for event in world.look(1) if event["event"] not in ("sample", "stopped")]
    assert [(event["event"], event["node"], event["count"]) for event in events] == [
        ("rejected", "full", 3),
        ("dropped", "ring", 4),
        ("parked", "parking", 3),
    ]
    assert only(events, "parked")["parked_msgs"] == 3
    assert world.look(2) == []


def test_revoked_credit_is_told(world: Watched) -> None:
    queue = world.queue(flow_stop_count=100)
    account = world.producer(queue)
    promised = account.outstanding
    assert promised > 0
    world.model.operators.hold("orders", True)
    world.engine.end_turn()
    assert holds(only(world.look(1), "revoked"), node="orders")


def test_messages_that_go_to_disk_and_come_back_are_told(world: Watched) -> None:
    world.engine.paging.pager = pager = _Memory()
    queue = world.queue(overflow="page", memory_limit="1MB")
    world.put(queue, 4000, size=1000)
    out = only(world.look(1), "paged_out")
    assert queue.spool is not None
    assert out["count"] == out["paged_msgs"] == queue.spool.count > 0
    consumer = world.consumer(queue)
    taken = 0
    while taken < 4000:
        pager.answer()
        world.engine.turn.mark_dirty(queue)
        world.engine.end_turn()
        taken += len(consumer.held)
        while consumer.held:
            world.engine.settlement.acknowledge(queue, consumer.held.pop())
    events = world.look(2)
    back = only(events, "paged_in")
    assert (back["count"], back["paged_msgs"]) == (queue.spool.paged_out, 0)
    assert holds(only(events, "sample"), settled=4000, depth_msgs=0)


def test_samples_add_up_to_what_happened(world: Watched) -> None:
    """A replay has nothing else: arrivals and departures of all intervals are those of the node."""
    dice = random.Random(5)
    queue = world.queue(max_count=40, flow_stop_count=20, overflow="ring")
    consumer = world.consumer(queue, credit=0)
    samples = []
    for second in range(1, 40):
        world.put(queue, dice.randrange(30), size=dice.randrange(1, 50))
        consumer.credit = dice.randrange(20)
        world.engine.turn.mark_dirty(queue)
        world.engine.end_turn()
        while consumer.held and dice.random() < 0.9:
            entry = consumer.held.pop()
            dice.choice((world.engine.settlement.acknowledge, world.engine.settlement.reject))(queue, entry)
        if dice.random() < 0.1:
            world.engine.actions.purge(queue)
        samples += [event for event in world.look(second) if event["event"] == "sample"]
        if samples:
            last = samples[-1]
            assert sum(each["received"] for each in samples) == last["received_total"] == queue.received
            assert sum(each["settled"] for each in samples) == last["settled_total"]
            assert (
                last["received_total"] - last["settled_total"] == last["depth_msgs"] == queue.gate.depth_msgs
            )
            assert sum(each["received_bytes"] for each in samples) == queue.received_bytes
            assert last["unsettled_msgs"] == len(consumer.held)
    assert len(samples) > 20


def test_a_node_where_nothing_changed_is_not_sampled(world: Watched) -> None:
    queue = world.queue()
    world.put(queue, 3)
    assert holds(only(world.look(1), "sample"), received=3, interval_ms=1000.0, kind="queue", depth_msgs=3)
    assert world.look(2) == []
    world.producer(queue)
    assert holds(only(world.look(3.5), "sample"), received=0, producers=1, interval_ms=1500.0)


def test_a_nodes_first_interval_has_what_came_before_it_was_looked_at(world: Watched) -> None:
    queue = world.queue(flow_stop_count=5)
    world.put(queue, 5)
    assert kinds(world.told()) == ["stopped"]
    assert holds(only(world.look(1), "sample"), received=5, settled=0, stopped_count=1)


def test_a_subscriptions_sample_names_its_topic(world: Watched) -> None:
    topic = world.model.nodes.create("topic", "news")
    world.subscribe(topic, "news/s1")
    world.put(topic, 2)
    samples = {event["node"]: event for event in world.look(1)}
    assert holds(samples["news"], kind="topic", received=2, settled=2)
    assert holds(samples["news/s1"], kind="subscription", address="news", received=2, depth_msgs=2)


def test_many_nodes_are_looked_at_a_part_at_a_time(world: Watched) -> None:
    for number in range(NODES_AT_ONCE + 1):
        world.put(world.queue(f"q{number}"), 1)
    world.at(1)
    assert world.watch.look(world.engine.turn.now_ns)
    assert len(world.told()) == NODES_AT_ONCE
    assert not world.watch.look(world.engine.turn.now_ns)
    assert kinds(world.told()) == ["sample"]


# --- what others tell, and bounds


def test_the_engines_port_takes_any_kind_with_its_node(world: Watched) -> None:
    queue = world.queue()
    world.engine.changes.emit("slow_consumer", queue, {"link": "c1.1", "connection": "c1", "rate": 0.5})
    world.engine.changes.emit("deadlock", None, {"id": 1, "nodes": ["a", "b"], "connections": ["c1", "c2"]})
    first, second = world.told()
    assert holds(first, event="slow_consumer", node="orders", link="c1.1", rate=0.5)
    assert holds(second, event="deadlock", node=None, nodes=["a", "b"])
    assert second["seq"] == first["seq"] + 1


def test_of_the_topic_of_events_nothing_is_told(world: Watched) -> None:
    world.model.nodes.own[TOPIC] = resolve(BACKLOG, BrokerDefaults())
    topic = world.model.nodes.resolve(TOPIC)
    world.subscribe(topic, f"{TOPIC}/s1")
    world.put(topic, 10)
    world.engine.actions.hold(topic, True)
    assert world.look(1) == []


def test_the_first_event_of_a_batch_arms_and_no_other(world: Watched) -> None:
    queue = world.queue()
    for _ in range(3):
        world.engine.changes.emit("slow_consumer", queue, {})
    assert world.armed == 1
    world.told()
    world.engine.changes.emit("slow_consumer", queue, {})
    assert world.armed == 2


def test_beyond_the_bound_events_are_counted(world: Watched) -> None:
    for _ in range(MOST_PENDING + 7):
        world.engine.changes.emit("stopping", None, {})
    batch = world.watch.take()
    assert len(batch) == MOST_PENDING + 1
    assert batch[-1][1] == "lost"
    assert batch[-1][4] == {"count": 7, "where": "broker"}
    assert world.watch.take() == []


def test_a_deleted_node_is_forgotten(world: Watched) -> None:
    queue = world.queue()
    world.put(queue, 1)
    world.look(1)
    world.model.nodes.delete("orders")
    world.queue()
    assert holds(only(world.look(2), "sample"), received=0, received_total=0, depth_msgs=0)
    assert queue not in world.watch._seen


# --- what readers are told


def test_the_topic_keeps_the_newest_of_what_a_slow_subscriber_leaves(world: Watched) -> None:
    world.model.nodes.own[TOPIC] = resolve(BACKLOG, BrokerDefaults())
    topic = world.model.nodes.resolve(TOPIC)
    subscription = world.subscribe(topic, f"{TOPIC}/s1")
    most = subscription.hard_msgs
    assert topic.settings is not None
    assert not topic.settings.flow_control
    for seq in range(1, most + 51):
        event: Event = (seq, "stopping", BEGIN, None, {})
        world.engine.intake.put(topic, message_of(event, world.teller.line(event)), 0)
    assert subscription.gate.depth_msgs == most
    assert subscription.dropped == 50
    assert not subscription.gate.closed


def test_the_documentation_has_every_kind_and_field() -> None:
    assert DOCS.read_text().endswith(f"{reference()}\n"), (
        "docs/observability.md: put the output of schema.reference() there"
    )


def test_the_schema_refuses_what_is_no_event() -> None:
    good = {"v": 1, "seq": 1, "time": "t", "mono_ns": 1, "event": "stopping", "node": None}
    VALID.validate(good)
    for wrong in ({"v": 2}, {"event": "nothing"}, {"seq": 0}, {"event": "stopped"}):
        assert not VALID.is_valid(good | wrong)
    assert set(KINDS) >= {"stopped", "opened", "sample", "lost"}


class _Silent(Port):
    """A port of a link that is granted nothing."""

    def grant(self, msgs: int) -> None:
        raise AssertionError("no credit was to be promised")

    def revoke(self, msgs: int) -> None: ...

    def admit(self, parked: object, size: int) -> None: ...

    def refuse(self, parked: object) -> None: ...


class _Memory:
    """A pager that forgets nothing and answers when it is told to."""

    used_bytes = 0

    def __init__(self) -> None:
        self.runs: list[bytes] = []
        self.answers: list[Callable[[], None]] = []

    def answer(self) -> None:
        answers, self.answers = self.answers, []
        for each in answers:
            each()

    def write(self, blob: bytes, done: Callable[[object], None]) -> None:
        self.runs.append(blob)
        place = len(self.runs) - 1
        self.answers.append(lambda: done(place))

    def read(self, place: object, done: Callable[[object], None]) -> None:
        assert isinstance(place, int)
        self.answers.append(lambda: done(self.runs[place]))

    def look(self, place: object, done: Callable[[object], None]) -> None: ...

    def free(self, place: object) -> None: ...
