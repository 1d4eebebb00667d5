"""Queues bound to topics: what they take, and what they inherit (FLOW §6)."""

from __future__ import annotations

import pytest

from broker.config.node import SettingError
from broker.config.policy_files import parse_policies
from broker.errors import ConflictError, NotFoundError, OperatorError
from broker.manage.calls import ended
from broker.manage.explaining import EffectiveSetting, Explanation
from tests.unit.manage_world import World

POLICIES = """\
policies:
  - {match: "*", producer_window: 50}
  - match: news
    kind: topic
    flow_stop_count: 5
  - match: sport
    kind: topic
    flow_stop_count: 7
    max_count: 20
"""


def setting(explanation: Explanation, name: str) -> EffectiveSetting:
    return next(each for each in explanation.settings if each.name == name)


@pytest.mark.flow
def test_a_bound_queue_takes_from_its_topic_what_it_does_not_set() -> None:
    world = World(POLICIES)
    world.model.nodes.bind("news", "inbox")
    node = world.engine.topology.nodes["inbox"]
    assert node.settings is not None
    assert (node.settings.flow_stop_count, node.settings.kind) == (5, "queue")
    told = world.model.explanations.explain("inbox")
    assert setting(told, "flow_stop_count").origin == "policies.yaml:5:5 (by topic news)"
    assert setting(told, "producer_window").origin == "policies.yaml:2:18"
    own = world.queue("own", flow_stop_count=3)
    world.model.nodes.bind("news", "own")
    assert own.gate.stop_msgs == 3
    assert setting(world.model.explanations.explain("own"), "flow_stop_count").origin == "argument"


@pytest.mark.flow
def test_of_several_topics_the_first_that_says_something_has_its_way() -> None:
    world = World(POLICIES)
    world.model.nodes.bind("news", "inbox")
    world.model.nodes.bind("sport", "inbox")
    node = world.engine.topology.nodes["inbox"]
    assert (node.gate.stop_msgs, node.hard_msgs) == (5, 20)
    world.model.nodes.unbind("news", "inbox")
    assert (node.gate.stop_msgs, node.hard_msgs) == (7, 20)
    world.model.nodes.bind("news", "inbox")
    assert node.gate.stop_msgs == 7, "sport was bound first now"


@pytest.mark.flow
def test_what_a_topic_was_declared_with_is_inherited_too_and_follows_its_changes() -> None:
    world = World()
    world.model.nodes.create("topic", "news", {"flow_stop_count": 4})
    world.model.nodes.bind("news", "inbox")
    inbox = world.engine.topology.nodes["inbox"]
    assert inbox.gate.stop_msgs == 4
    assert (
        setting(world.model.explanations.explain("inbox"), "flow_stop_count").origin
        == "argument (by topic news)"
    )
    world.model.nodes.update("news", {"flow_stop_count": 9})
    assert inbox.gate.stop_msgs == 9
    world.model.nodes.delete("news")
    assert inbox.gate.stop_msgs == 0


@pytest.mark.flow
def test_unbinding_releases_whom_the_topic_s_settings_blocked_in_the_same_turn() -> None:
    world = World(POLICIES)
    world.model.nodes.bind("news", "inbox")
    inbox = world.engine.topology.nodes["inbox"]
    account = world.producer(inbox)
    world.fill(inbox, account, 5)
    assert (inbox.gate.closed, account.outstanding) == (True, 0)
    world.model.nodes.unbind("news", "inbox")
    world.engine.end_turn()
    assert (inbox.gate.closed, inbox.gate.depth_msgs) == (False, 5)
    assert account.outstanding > 0


@pytest.mark.flow
def test_withdrawing_a_policy_releases_whom_it_blocked_in_the_same_turn() -> None:
    world = World("policies: [{match: orders, flow_stop_count: 3}]")
    node = world.model.nodes.resolve("orders")
    account = world.producer(node)
    world.fill(node, account, 3)
    assert account.outstanding == 0
    assert world.model.policies.apply(parse_policies("policies: []", "p")) == ["orders"]
    world.engine.end_turn()
    assert (account.outstanding > 0, node.gate.depth_msgs) == (True, 3)


@pytest.mark.flow
def test_a_policy_applied_with_nothing_in_it_takes_back_what_stood_there() -> None:
    world = World("policies: [{match: orders, flow_stop_count: 3}, {match: '*', flow_stop_count: 50}]")
    node = world.model.nodes.resolve("orders")
    account = world.producer(node)
    world.fill(node, account, 3)
    assert ended(
        world.model.policies.apply_in_parts(parse_policies("policies: [{match: orders}]", "empty.yaml"))
    ) == ["orders"]
    world.engine.end_turn()
    assert (node.gate.stop_msgs, account.outstanding > 0) == (50, True)


def test_publishing_needs_room_in_a_bound_queue_and_fills_it() -> None:
    world = World(POLICIES)
    world.model.nodes.bind("news", "inbox")
    news, inbox = world.engine.topology.nodes["news"], world.engine.topology.nodes["inbox"]
    account = world.producer(news)
    assert account.outstanding == 5
    world.fill(news, account, 5)
    assert (inbox.gate.depth_msgs, account.outstanding) == (5, 0)
    world.model.nodes.unbind("news", "inbox")
    world.engine.end_turn()
    assert (inbox.gate.depth_msgs, account.outstanding > 0) == (5, True)


def test_what_can_not_be_bound() -> None:
    world = World(POLICIES)
    world.model.nodes.bind("news", "inbox")
    with pytest.raises(ConflictError, match="bound to 'news' already"):
        world.model.nodes.bind("news", "inbox")
    with pytest.raises(OperatorError, match="is a queue: only topics have bindings"):
        world.model.nodes.bind("inbox", "other")
    with pytest.raises(OperatorError, match="is a topic: only queues can be bound"):
        world.model.nodes.bind("news", "sport")
    with pytest.raises(NotFoundError):
        world.model.nodes.unbind("sport", "inbox")


def test_a_binding_whose_inheritance_contradicts_is_refused_and_changes_nothing() -> None:
    world = World(POLICIES)
    world.queue("small", max_count=4)
    with pytest.raises(SettingError, match="flow_stop_count 5 is more than max_count 4"):
        world.model.nodes.bind("news", "small")
    assert not world.engine.topology.nodes["small"].topics
    world.model.nodes.bind("sport", "inbox")
    world.model.nodes.create("topic", "odd", {"max_count": 30})
    with pytest.raises(SettingError):
        world.model.nodes.update("sport", {"max_count": 6})
    assert world.engine.topology.nodes["inbox"].hard_msgs == 20
