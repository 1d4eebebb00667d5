"""Queues and subscriptions that nobody uses: never deleted early, and always in time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.flow.producer_credit import ProducerCredit
from tests.unit.manage_world import BEGIN, SECOND, FakeConsumer, World

EXPIRE_S = 10
POLICY = (
    "policies:\n  - {match: 'q.#', expire_after: 10s}\n  - {match: news, kind: topic, expire_after: 10s}\n"
)


class Used(World):
    """A world whose clock ticks, and whose node is used by links and messages."""

    def __init__(self) -> None:
        super().__init__(POLICY)
        self.clock_ns = BEGIN
        self.second_ns = BEGIN + SECOND

    def passes(self, ms: int) -> None:
        """So long, with a look each second."""
        until = self.clock_ns + ms * 1_000_000
        while self.second_ns <= until:
            self.engine.begin_turn(self.second_ns)
            self.model.sample()
            self.engine.end_turn()
            self.second_ns += SECOND
        self.clock_ns = until
        self.engine.begin_turn(until)
        self.engine.end_turn()


_verbs = st.lists(
    st.tuples(
        st.sampled_from(("send", "blink", "attach", "receive", "leave", "put", "drain", "nothing")),
        st.integers(0, 15_000),
    ),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(_verbs)
def test_one_that_is_used_stays_and_one_that_is_not_goes(verbs: list[tuple[str, int]]) -> None:
    world = Used()
    node = world.model.nodes.resolve("q.a")
    links: list[ProducerCredit | FakeConsumer] = []
    used_ns = world.clock_ns
    for number, (verb, ms) in enumerate(verbs):
        if node.deleted:
            break
        engine = world.engine
        if verb == "blink":
            account = world.producer(node, f"s{number}")
            engine.producers.close(node, account)
        elif verb in ("send", "attach"):
            links.append(world.producer(node, f"s{number}"))
        elif verb == "receive":
            links.append(world.consumer(node, link=f"r{number}", credit=0))
        elif verb == "leave":
            if not links:
                continue
            link = links.pop()
            if isinstance(link, FakeConsumer):
                engine.delivery.remove_consumer(node, link)
            else:
                engine.producers.close(node, link)
        elif verb == "put":
            world.put(node, 1)
        elif verb == "drain":
            world.model.messages.purge(node.name)
        if verb not in ("drain", "nothing"):
            used_ns = world.clock_ns
        if links or node.gate.depth_msgs:
            used_ns = world.clock_ns
        world.passes(ms)
        if links or node.gate.depth_msgs:
            used_ns = world.clock_ns
            assert not node.deleted, (number, verb)
        elif node.deleted:
            assert world.clock_ns - used_ns >= EXPIRE_S * SECOND, (number, verb)
        else:
            # One more look, and a second between two of them.
            assert world.clock_ns - used_ns < (EXPIRE_S + 2) * SECOND, (number, verb)


@pytest.mark.parametrize("use", ["producer", "consumer", "message"])
def test_a_use_between_two_looks_counts(use: str) -> None:
    world = Used()
    node = world.model.nodes.resolve("q.a")
    world.passes(9_400)
    engine = world.engine
    if use == "producer":
        engine.producers.close(node, world.producer(node))
    elif use == "consumer":
        engine.delivery.remove_consumer(node, world.consumer(node))
    else:
        world.put(node, 1)
        world.model.messages.purge(node.name)
    world.passes(9_800)
    assert not node.deleted
    world.passes(2_200)
    assert node.deleted


def test_the_time_begins_anew_where_another_holds() -> None:
    world = Used()
    node = world.model.nodes.resolve("other")
    world.passes(60_000)
    world.model.nodes.update("other", {"expire_after": "10s"})
    world.passes(9_000)
    assert not node.deleted
    world.passes(3_000)
    assert node.deleted


def test_a_topic_stays() -> None:
    world = Used()
    topic = world.model.nodes.resolve("news")
    assert topic.is_topic
    world.passes(60_000)
    assert not topic.deleted


def test_an_end_of_a_bridge_is_in_use() -> None:
    world = Used()
    source, target = world.model.nodes.resolve("q.a"), world.model.nodes.resolve("q.b")
    world.engine.topology.bridging.add(source, target)
    world.passes(30_000)
    assert not source.deleted
    assert not target.deleted


def test_nothing_is_watched_that_has_no_such_setting() -> None:
    world = Used()
    world.model.nodes.resolve("other")
    node = world.model.nodes.resolve("q.a")
    assert world.engine.topology.fading == {node}
    world.model.nodes.update("q.a", {"expire_after": 0})
    assert world.engine.topology.fading == set()
    world.model.nodes.update("q.a", {"expire_after": "5s"})
    assert world.engine.topology.fading == {node}
    world.model.nodes.delete("q.a")
    assert world.engine.topology.fading == set()


@pytest.mark.parametrize("reads", [False, True])
def test_a_stream_stays_while_it_has_messages_or_a_named_reader(reads: bool) -> None:
    world = Used()
    world.model.nodes.create("queue", "q.s", {"queue_type": "stream", "max_count": 1})
    node = world.engine.topology.node("q.s")
    if reads:
        world.engine.streams.commits.restore(node, "billing", 0)
    else:
        world.put(node, 1)
    world.passes(3 * EXPIRE_S * 1000)
    assert not node.deleted
    if reads:
        world.engine.streams.commits.remove(node, "billing")
    else:
        assert node.stream is not None
        node.stream.give_way(0)
    world.passes(3 * EXPIRE_S * 1000)
    assert node.deleted
