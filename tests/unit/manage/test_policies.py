"""The verbs about policies, on a real engine."""

from __future__ import annotations

from itertools import islice

import pytest

from broker.config.flow import BrokerDefaults
from broker.config.policies import PolicySet
from broker.config.policy_files import parse_policies
from broker.errors import ConfigError, OperatorError
from broker.manage.calls import ended
from broker.manage.policy_reader import Reread
from broker.manage.policy_view import PolicyView, policy_views
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


def test_new_policies_reach_nodes_that_exist_but_not_their_own_arguments() -> None:
    world = World(ORDERS)
    plain, explicit = world.model.nodes.resolve("orders.a"), world.queue("orders.b", flow_stop_count=10)
    changed = world.model.policies.apply(parse_policies(ORDERS.replace("900", "500"), "policies.yaml"))
    assert changed == ["orders.a"]
    assert (plain.gate.stop_msgs, explicit.gate.stop_msgs) == (500, 10)


def test_policies_that_one_node_cannot_follow_change_no_node() -> None:
    world = World(ORDERS)
    plain = world.model.nodes.resolve("orders.a")
    world.queue("orders.b", flow_stop_count=800)
    old = world.model.policies
    tighter = ORDERS.replace("1000", "100").replace("900", "50")
    with pytest.raises(OperatorError, match=r"orders\.b: flow_stop_count 800 is more than max_count 100"):
        world.model.policies.apply(parse_policies(tighter, "policies.yaml"))
    assert plain.gate.stop_msgs == 900
    assert world.model.policies is old


def test_a_policy_cannot_turn_a_queue_into_a_topic() -> None:
    world = World(ORDERS)
    world.model.nodes.resolve("orders.a")
    with pytest.raises(OperatorError, match="is a queue and can't become a topic"):
        world.model.policies.apply(parse_policies('policies: [{match: "orders.>", kind: topic}]', "p.yaml"))


def test_a_topic_made_by_capability_stays_one_over_a_reload() -> None:
    world = World(ORDERS)
    node = world.model.nodes.resolve("other", "topic")
    world.model.policies.apply(world.model.policies.in_force, BrokerDefaults(default_flow_stop_threshold=75))
    assert node.kind == "topic"
    assert node.settings is not None
    assert node.settings.flow_stop_size == 75 * (1 << 20)


def test_a_text_replaces_the_policies_of_its_patterns_and_keeps_the_others() -> None:
    world = World(ORDERS)
    node = world.model.nodes.resolve("orders.a")
    ended(
        world.model.policies.apply_in_parts(
            parse_policies('policies: [{match: "orders.>", flow_stop_count: 70}]', "new.yaml")
        )
    )
    assert node.gate.stop_msgs == 70
    assert world.model.nodes.resolve("news.a").kind == "topic"
    with pytest.raises(ConfigError, match=r"new\.yaml:1:"):
        ended(world.model.policies.apply_in_parts(parse_policies("policies: [{match: 1}]", "new.yaml")))


def test_reload_asks_whoever_has_the_files() -> None:
    world = World()
    with pytest.raises(OperatorError, match="without files"):
        ended(world.model.policies.reload_in_parts(world.model.policy_reader.read_again()))
    node, taken = world.model.nodes.resolve("orders"), []
    read = parse_policies("policies: [{match: orders, flow_stop_count: 7}]", "p.yaml")
    world.model.policy_reader.on_reload = lambda: Reread(
        read, BrokerDefaults(), lambda: taken.append(node.gate.stop_msgs)
    )
    assert ended(world.model.policies.reload_in_parts(world.model.policy_reader.read_again())) == ["orders"]
    assert taken == [7]


def test_explain_names_the_line_of_every_value_and_says_what_would_be_created() -> None:
    world = World(ORDERS)
    world.model.operators.hold("orders.>", True)
    found = world.model.explanations.explain("orders.eu")
    origins = {setting.name: (setting.value, setting.origin) for setting in found.settings}
    assert origins["flow_stop_count"] == (900, "policies.yaml:4:5")
    assert origins["flow_resume_count"] == (700, "default (70 % of max_count)")
    assert (found.exists, found.auto_create, found.held_by) == (False, True, "orders.>")
    world.queue("orders.eu", flow_stop_count=10)
    found = world.model.explanations.explain("orders.eu")
    assert next(s for s in found.settings if s.name == "flow_stop_count").origin == "argument"
    assert found.exists


def policies_of(count: int) -> PolicySet:
    return parse_policies(ORDERS.replace("900", str(count)), "policies.yaml")


def test_policies_are_worked_out_in_steps_and_until_then_nothing_changes() -> None:
    world = World(ORDERS)
    nodes = [world.model.nodes.resolve(f"orders.{number}") for number in range(10)]
    steps = world.model.policies.apply_in_parts(policies_of(500))
    for _ in range(10):
        next(steps)
    assert {node.gate.stop_msgs for node in nodes} == {900}
    assert ended(steps) == [node.name for node in nodes]
    assert {node.gate.stop_msgs for node in nodes} == {500}


@pytest.mark.parametrize("taken", range(14))
def test_whoever_goes_away_leaves_all_nodes_or_none_with_the_new_policies(taken: int) -> None:
    world = World(ORDERS)
    nodes = [world.model.nodes.resolve(f"orders.{number}") for number in range(5)]
    steps = world.model.policies.apply_in_parts(policies_of(500))
    for _ in islice(steps, taken):
        pass
    steps.close()
    assert len({node.gate.stop_msgs for node in nodes}) == 1
    assert nodes[0].gate.stop_msgs == world.model.nodes.resolve("orders.new").gate.stop_msgs


@pytest.mark.parametrize("taken", range(14))
def test_nodes_made_changed_and_deleted_meanwhile_have_what_holds_in_the_end(taken: int) -> None:
    world = World(ORDERS)
    model = world.model
    nodes = [model.nodes.resolve(f"orders.{number}") for number in range(5)]
    steps = model.policies.apply_in_parts(policies_of(500))
    for _ in islice(steps, taken):
        pass
    model.nodes.update("orders.1", {"flow_stop_count": 60, "flow_resume_count": 50})
    model.nodes.delete("orders.2")
    made = model.nodes.resolve("orders.a")
    for _ in steps:
        pass
    assert (nodes[0].gate.stop_msgs, nodes[1].gate.stop_msgs, nodes[4].gate.stop_msgs) == (500, 60, 500)
    assert made.gate.stop_msgs == 500
    assert model.policies.apply(model.policies.in_force) == []


@pytest.mark.parametrize("taken", range(9))
def test_of_two_changes_at_once_neither_is_lost(taken: int) -> None:
    world = World(ORDERS)
    model = world.model
    nodes = [model.nodes.resolve(f"orders.{number}") for number in range(3)] + [
        model.nodes.create("queue", "bills")
    ]
    first = model.policies.apply_in_parts(
        parse_policies("policies: [{match: bills, flow_stop_count: 7}]", "b")
    )
    for _ in islice(first, taken):
        pass
    ended(model.policies.apply_in_parts(policies_of(500)))
    for _ in first:
        pass
    assert [node.gate.stop_msgs for node in nodes] == [500, 500, 500, 7]
    assert model.policies.apply(model.policies.in_force) == []


def test_a_trial_of_policies_changes_nothing_and_says_what_would() -> None:
    world = World(ORDERS)
    node, old = world.model.nodes.resolve("orders.a"), world.model.policies
    assert ended(world.model.policies.try_in_parts(policies_of(500))) == ["orders.a"]
    assert (node.gate.stop_msgs, world.model.policies) == (900, old)
    other = 'policies: [{match: "orders.>", kind: topic}]'
    with pytest.raises(OperatorError, match="is a queue and can't become a topic"):
        ended(world.model.policies.try_in_parts(parse_policies(other, "p.yaml")))


def test_a_page_of_very_many_policies_costs_a_page() -> None:
    """Of the others nothing is made: as many as there are, a page reads as many settings as it shows."""
    text = "policies:\n" + "".join(
        f"- {{match: a{number}, max_count: {number + 1}}}\n" for number in range(500)
    )
    world = World(text)
    read: list[str] = []

    class Counted(PolicyView):
        @property
        def settings(self) -> tuple[dict[str, object], ...]:
            read.append(self.name)
            return PolicyView.settings.fget(self)  # type: ignore[attr-defined, no-any-return]

    views = [Counted(view.policy) for view in policy_views(world.model.policies.in_force)]
    world.model.queries.entities._more = {**world.model.queries.entities._more, "policy": lambda: views}
    page = world.model.queries.query("org.sluice.policy", ["name", "settings"], 100, 5)
    assert page.total == 500
    assert [row[0] for row in page.results] == read
    assert len(read) == 5
