"""A refused command changes nothing: what others would come to is known before anything is done."""

from __future__ import annotations

import pytest

from broker.config.node import SettingError
from broker.engine.node import Node
from broker.errors import LimitError, NotFoundError, OperatorError
from broker.manage.subscriptions import SubscriptionKey
from tests.unit.manage_world import World

OWN_RESUME = """\
policies:
  - {match: S, kind: topic, flow_stop_count: 1000, flow_resume_count: 700}
  - {match: "S/>", kind: subscription, flow_resume_count: 500}
"""
LASTING = SubscriptionKey("S", "app", "sub", lasts=True, durable=True)
NEEDS = "flow_resume_count 500 needs a flow_stop_count"


def thresholds(node: Node) -> tuple[int, int]:
    assert node.settings is not None
    return node.settings.flow_stop_count, node.settings.flow_resume_count


def leaning() -> tuple[World, Node]:
    """A queue whose own threshold needs that of its topic."""
    world = World()
    world.model.nodes.create("topic", "T", {"flow_stop_count": 1000})
    queue = world.queue("Q")
    world.model.nodes.bind("T", "Q")
    world.model.nodes.update("Q", {"flow_resume_count": 500})
    return world, queue


def test_a_topic_s_change_that_a_subscription_can_not_follow_is_refused_whole() -> None:
    world = World(OWN_RESUME)
    subscription = world.model.subscriptions.join(LASTING).node
    topic = world.engine.topology.nodes["S"]
    assert (thresholds(topic), thresholds(subscription)) == ((1000, 700), (1000, 500))
    wanted = {"flow_stop_count": 100, "flow_resume_count": 50}
    for verb in (world.model.explanations.effect, world.model.nodes.update):
        with pytest.raises(SettingError, match="flow_resume_count 500 is more than flow_stop_count 100"):
            verb("S", wanted)
        assert (thresholds(topic), thresholds(subscription)) == ((1000, 700), (1000, 500))
        assert not topic.arguments
    world.model.nodes.update("S", {"flow_stop_count": 800})
    assert (thresholds(topic), thresholds(subscription)) == ((800, 700), (800, 500))


def test_the_effect_of_a_change_that_a_queue_can_not_follow_is_a_refusal() -> None:
    world, queue = leaning()
    for verb in (world.model.explanations.effect, world.model.nodes.update):
        with pytest.raises(SettingError, match=NEEDS):
            verb("T", {"flow_stop_count": None})
    assert thresholds(queue) == (1000, 500)
    assert world.engine.topology.nodes["T"].arguments == {"kind": "topic", "flow_stop_count": 1000}


def test_a_topic_that_a_queue_leans_on_is_not_deleted() -> None:
    world, queue = leaning()
    gone: list[str] = []
    world.model.nodes.on_delete = lambda node: gone.append(node.name)
    world.model.subscriptions.join(SubscriptionKey("T", "app", "sub", lasts=True))
    with pytest.raises(SettingError, match=NEEDS):
        world.model.nodes.delete("T")
    assert (gone, "T" in world.engine.topology.nodes, queue.topics) == (
        [],
        True,
        [world.engine.topology.nodes["T"]],
    )
    assert list(world.engine.topology.subscriptions) == ["T/app.sub"]
    world.model.nodes.update("Q", {"flow_resume_count": None})
    world.model.nodes.delete("T")
    assert (gone, queue.topics, thresholds(queue)) == (["T/app.sub", "T"], [], (0, 0))


def test_a_node_that_goes_with_its_link_goes_whoever_leans_on_it() -> None:
    world, queue = leaning()
    gone: list[str] = []
    world.model.nodes.on_delete = lambda node: gone.append(node.name)
    world.model.nodes.delete("T", anyway=True)
    assert (gone, "T" in world.engine.topology.nodes, thresholds(queue)) == (["T"], False, (0, 0))
    origins = {each.name: each.origin for each in world.model.explanations.explain("Q").settings}
    assert origins["flow_stop_count"].startswith("default")
    # What it was set to is kept, and holds again once that is possible.
    world.model.nodes.create("topic", "T2", {"flow_stop_count": 900})
    world.model.nodes.bind("T2", "Q")
    assert thresholds(queue) == (900, 500)


def test_unbinding_a_queue_from_what_it_leans_on_is_refused_whole() -> None:
    world, queue = leaning()
    with pytest.raises(SettingError, match=NEEDS):
        world.model.nodes.unbind("T", "Q")
    assert (queue.topics, thresholds(queue)) == ([world.engine.topology.nodes["T"]], (1000, 500))


BIND = """\
policies:
  - {match: bq, max_count: 10000, flow_resume_count: 5000}
  - {match: leans, flow_resume_count: 50}
  - {match: closed, auto_create: false}
  - {match: plain, kind: queue}
"""


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("BT", "bq", "flow_resume_count 5000 is more than flow_stop_count 100"),
        ("BT", "closed", "auto_create is false"),
        ("new", "closed", "auto_create is false"),
        ("plain", "new", "only topics have bindings"),
        ("$other", "new", "the broker's own"),
        ("BT", "$other", "the broker's own"),
        ("new", "BT", "only queues can be bound"),
        ("new.*", "new", "stands for many topics"),
        ("new", "new", "bound to itself"),
    ],
)
def test_a_refused_binding_makes_no_node(source: str, target: str, reason: str) -> None:
    world = World(BIND)
    world.model.nodes.create("topic", "BT", {"flow_stop_count": 100})
    with pytest.raises((SettingError, NotFoundError, OperatorError), match=reason):
        world.model.nodes.bind(source, target)
    assert list(world.engine.topology.nodes) == ["BT"]


def test_a_queue_is_made_with_what_its_topic_has() -> None:
    world = World(BIND)
    world.model.nodes.create("topic", "BT", {"flow_stop_count": 100})
    world.model.nodes.bind("BT", "leans")
    assert thresholds(world.engine.topology.nodes["leans"]) == (100, 50)


def test_a_binding_makes_both_its_ends_or_none() -> None:
    world = World()
    world.model.ownership.most = 2
    world.model.nodes.resolve("one", user="ann")
    with pytest.raises(LimitError):
        world.model.nodes.bind("T", "Q", "ann")
    assert list(world.engine.topology.nodes) == ["one"]
    world.model.nodes.resolve("T", "topic", "ann")
    world.model.nodes.resolve("Q")
    world.model.nodes.bind("T", "Q", "ann")
    assert world.engine.topology.nodes["Q"].topics == [world.engine.topology.nodes["T"]]
