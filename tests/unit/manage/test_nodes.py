"""The verbs about queues and topics, on a real engine."""

from __future__ import annotations

import pytest

from broker.engine.node import Node
from broker.errors import ConflictError, NotFoundError, OperatorError
from tests.unit.manage_world import World

ORDERS = """\
policies:
  - match: "orders.>"
    max_count: 1000
    flow_stop_count: 900
  - match: "news.>"
    kind: topic
  - match: "closed.>"
    auto_create: false
"""


def test_an_existing_node_is_found_whatever_is_wanted() -> None:
    world = World()
    node = world.queue("orders")
    assert world.model.nodes.resolve("orders", "topic") is node


def test_a_policy_decides_the_kind_before_the_capability_and_the_capability_before_the_default() -> None:
    model = World(ORDERS).model
    assert model.nodes.resolve("news.world", "queue").kind == "topic"
    assert model.nodes.resolve("other", "topic").kind == "topic"
    assert model.nodes.resolve("another").kind == "queue"


def test_what_no_policy_creates_is_not_found() -> None:
    world = World(ORDERS)
    with pytest.raises(NotFoundError, match=r"closed\.x.*policies\.yaml:8:5"):
        world.model.nodes.resolve("closed.x")
    assert world.engine.topology.nodes == {}


def test_the_brokers_own_switch_stops_auto_creation() -> None:
    world = World(ORDERS)
    world.model.policies.auto_create = False
    with pytest.raises(NotFoundError):
        world.model.nodes.resolve("orders.eu")


@pytest.mark.parametrize(
    "name", ["", "x" * 256, "a\nb", "a\x1b[31m", "a\x00", "$management", "a\u2028b", "\x9b"]
)
def test_a_name_that_no_node_may_bear_is_refused(name: str) -> None:
    world = World()
    for verb in (
        world.model.nodes.resolve,
        world.model.explanations.explain,
        lambda name: world.model.nodes.create("queue", name),
    ):
        with pytest.raises(OperatorError):
            verb(name)
    assert world.engine.topology.nodes == {}


def test_the_refusal_of_a_name_holds_no_control_character() -> None:
    with pytest.raises(OperatorError) as refusal:
        World().model.nodes.resolve("a\x1b[31m")
    assert "\x1b" not in str(refusal.value)


def test_arguments_stand_above_policies_in_qpids_words_and_in_ours() -> None:
    model = World(ORDERS).model
    node = model.nodes.create(
        "queue", "orders.eu", {"qpid.flow_stop_count": "50", "max_count": 200}, durable=True
    )
    settings = node.settings
    assert settings is not None
    assert (settings.flow_stop_count, settings.max_count, settings.durable) == (50, 200, True)
    assert node.gate.stop_msgs == 50


def test_a_second_one_of_the_name_is_a_conflict() -> None:
    world = World()
    world.queue("orders")
    with pytest.raises(ConflictError):
        world.queue("orders")


def test_a_contradiction_is_refused_and_nothing_is_made() -> None:
    world = World()
    with pytest.raises(OperatorError, match="flow_resume_count 20 is more than flow_stop_count 10"):
        world.queue("orders", flow_stop_count=10, flow_resume_count=20)
    with pytest.raises(OperatorError, match="flow_stop_cuont"):
        world.queue("orders", flow_stop_cuont=10)
    assert world.engine.topology.nodes == {}


def test_update_changes_one_setting_and_keeps_the_others() -> None:
    world = World()
    node = world.queue(max_count=100, flow_stop_count=50, flow_resume_count=20)
    changed: list[Node] = []
    world.model.policies.on_change = changed.append
    world.model.nodes.update("orders", {"flow_stop_count": 40})
    assert (node.gate.stop_msgs, node.gate.resume_msgs, node.hard_msgs) == (40, 20, 100)
    assert changed == [node]


def test_none_takes_a_setting_back_so_that_the_policys_holds_again() -> None:
    world = World(ORDERS)
    node = world.queue("orders.eu", flow_stop_count=50)
    world.model.nodes.update("orders.eu", {"qpid.flow_stop_count": None})
    assert node.gate.stop_msgs == 900
    with pytest.raises(OperatorError, match="no argument 'max_count' to take back"):
        world.model.nodes.update("orders.eu", {"max_count": None})


def test_a_refused_update_changes_nothing() -> None:
    world = World()
    node = world.queue(max_count=100, flow_stop_count=50)
    with pytest.raises(OperatorError):
        world.model.nodes.update("orders", {"flow_stop_count": 101})
    with pytest.raises(OperatorError):
        world.model.nodes.update("orders", {"kind": "topic"})
    assert node.gate.stop_msgs == 50
    assert node.arguments == {"kind": "queue", "max_count": 100, "flow_stop_count": 50}


def test_deleting_a_topic_tells_of_its_subscriptions_too() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news")
    first = world.subscribe(topic, "news/s1")
    gone: list[str] = []
    world.model.nodes.on_delete = lambda node: gone.append(node.name)
    world.model.nodes.delete("news")
    assert gone == ["news/s1", "news"]
    assert (first.deleted, topic.deleted, world.engine.topology.nodes) == (True, True, {})


def test_one_subscription_can_be_deleted_alone() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news")
    world.subscribe(topic, "news/s1")
    world.model.nodes.delete("news/s1")
    assert topic.subscriptions == []
    with pytest.raises(NotFoundError):
        world.model.nodes.delete("news/s1")
