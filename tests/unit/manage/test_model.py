"""The verbs of the model, on a real engine."""

from __future__ import annotations

from itertools import islice

import pytest

from broker.config.flow import BrokerDefaults
from broker.config.policies import PolicySet
from broker.config.policy_files import parse_policies
from broker.engine.node import Node
from broker.errors import ConfigError, ConflictError, NotFoundError, OperatorError
from broker.manage.calls import ended
from broker.manage.policies import Reread
from broker.manage.policy_view import PolicyView, policy_views
from tests.unit.manage_world import SECOND, World

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


# --- resolve


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
    assert world.engine.nodes == {}


def test_the_brokers_own_switch_stops_auto_creation() -> None:
    world = World(ORDERS)
    world.model.settings.auto_create = False
    with pytest.raises(NotFoundError):
        world.model.nodes.resolve("orders.eu")


@pytest.mark.parametrize(
    "name", ["", "x" * 256, "a\nb", "a\x1b[31m", "a\x00", "$management", "a\u2028b", "\x9b"]
)
def test_a_name_that_no_node_may_bear_is_refused(name: str) -> None:
    world = World()
    for verb in (
        world.model.nodes.resolve,
        world.model.policies.explain,
        lambda name: world.model.nodes.create("queue", name),
    ):
        with pytest.raises(OperatorError):
            verb(name)
    assert world.engine.nodes == {}


def test_the_refusal_of_a_name_holds_no_control_character() -> None:
    with pytest.raises(OperatorError) as refusal:
        World().model.nodes.resolve("a\x1b[31m")
    assert "\x1b" not in str(refusal.value)


# --- create, update, delete


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
    assert world.engine.nodes == {}


def test_update_changes_one_setting_and_keeps_the_others() -> None:
    world = World()
    node = world.queue(max_count=100, flow_stop_count=50, flow_resume_count=20)
    changed: list[Node] = []
    world.model.nodes.on_change = changed.append
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
    assert (first.deleted, topic.deleted, world.engine.nodes) == (True, True, {})


def test_one_subscription_can_be_deleted_alone() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news")
    world.subscribe(topic, "news/s1")
    world.model.nodes.delete("news/s1")
    assert topic.subscriptions == []
    with pytest.raises(NotFoundError):
        world.model.nodes.delete("news/s1")


def test_purge_drops_what_is_ready_and_producers_go_on() -> None:
    world = World()
    node = world.queue(flow_stop_count=5)
    account = world.producer(node)
    world.fill(node, account, 5)
    assert node.gate.closed
    assert world.model.messages.purge("orders") == 5
    world.engine.end_turn()
    assert not node.gate.closed
    assert account.outstanding > 0


# --- hold


def test_a_hold_takes_credit_back_and_lifting_it_gives_credit() -> None:
    world = World()
    node = world.queue()
    account = world.producer(node)
    assert account.outstanding > 0
    assert world.model.operators.hold("orders", True) == ["orders"]
    world.engine.end_turn()
    assert (account.outstanding, node.gate.closed) == (0, True)
    assert world.model.operators.hold("orders", False) == ["orders"]
    world.engine.end_turn()
    assert account.outstanding > 0


def test_a_hold_on_a_pattern_is_for_nodes_to_come_as_well() -> None:
    world = World()
    world.queue("orders.eu")
    world.queue("stock")
    assert world.model.operators.hold("orders.>", True) == ["orders.eu"]
    assert world.model.nodes.resolve("orders.us").gate.held
    assert not world.model.nodes.resolve("stock.us").gate.held
    assert world.model.operators.hold(None, False) == ["orders.eu", "stock", "orders.us", "stock.us"]
    assert not any(node.gate.held for node in world.engine.nodes.values())


def test_a_bad_pattern_is_refused_and_holds_nobody() -> None:
    world = World()
    world.queue("orders.eu")
    with pytest.raises(OperatorError, match="last word"):
        world.model.operators.hold("orders.>.eu", True)
    assert world.model.holds.patterns == ()


def test_the_brokers_own_nodes_are_never_held() -> None:
    world = World()
    settings = world.queue("orders").settings
    assert settings is not None
    own = world.engine.create("$temporary/1", settings)
    assert world.model.operators.hold(None, True) == ["orders"]
    assert not own.gate.held


# --- policies


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
    world.model.policies.apply(world.model.settings.policies, BrokerDefaults(default_flow_stop_threshold=75))
    assert node.kind == "topic"
    assert node.settings is not None
    assert node.settings.flow_stop_size == 75 * (1 << 20)


def test_a_text_replaces_the_policies_of_its_patterns_and_keeps_the_others() -> None:
    world = World(ORDERS)
    node = world.model.nodes.resolve("orders.a")
    world.model.policies.apply_text('policies: [{match: "orders.>", flow_stop_count: 70}]', "new.yaml")
    assert node.gate.stop_msgs == 70
    assert world.model.nodes.resolve("news.a").kind == "topic"
    with pytest.raises(ConfigError, match=r"new\.yaml:1:"):
        world.model.policies.apply_text("policies: [{match: 1}]", "new.yaml")


def test_reload_asks_whoever_has_the_files() -> None:
    world = World()
    with pytest.raises(OperatorError, match="without files"):
        world.model.policies.reload()
    node, taken = world.model.nodes.resolve("orders"), []
    read = parse_policies("policies: [{match: orders, flow_stop_count: 7}]", "p.yaml")
    world.model.policies.on_reload = lambda: Reread(
        read, BrokerDefaults(), lambda: taken.append(node.gate.stop_msgs)
    )
    assert world.model.policies.reload() == ["orders"]
    assert taken == [7]


# --- explain, snapshot


def test_explain_names_the_line_of_every_value_and_says_what_would_be_created() -> None:
    world = World(ORDERS)
    world.model.operators.hold("orders.>", True)
    found = world.model.policies.explain("orders.eu")
    origins = {setting.name: (setting.value, setting.origin) for setting in found.settings}
    assert origins["flow_stop_count"] == (900, "policies.yaml:4:5")
    assert origins["flow_resume_count"] == (700, "default (70 % of max_count)")
    assert (found.exists, found.auto_create, found.held_by) == (False, True, "orders.>")
    world.queue("orders.eu", flow_stop_count=10)
    found = world.model.policies.explain("orders.eu")
    assert next(s for s in found.settings if s.name == "flow_stop_count").origin == "argument"
    assert found.exists


def test_totals_never_fall_when_nodes_go() -> None:
    world = World()
    for name in ("a", "b"):
        node = world.queue(name)
        world.fill(node, world.producer(node), 3)
    assert world.model.queries.snapshot().broker.totals.received == 6
    world.model.nodes.delete("a")
    assert world.model.queries.snapshot().broker.totals.received == 6
    world.engine.delete("b")  # behind the model's back, as a link's temporary node goes
    assert world.model.queries.snapshot().broker.totals.received == 6
    assert world.model.queries.snapshot().broker.totals.received == 6


def test_a_topics_copies_are_received_once_and_lie_in_its_subscriptions() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news")
    for number in (1, 2):
        world.subscribe(topic, f"news/s{number}")
    world.fill(topic, world.producer(topic), 4)
    snapshot = world.model.queries.snapshot()
    assert (snapshot.broker.totals.received, snapshot.broker.depth_msgs) == (4, 8)
    views = {view.name: view for view in snapshot.queues}
    assert (views["news"].depth_msgs, views["news/s1"].depth_msgs) == (8, 4)
    assert views["news/s1"].topic == "news"


def test_the_view_of_a_stopped_queue_says_since_when_and_by_what() -> None:
    world = World()
    node = world.queue(flow_stop_count=4, flow_resume_count=2)
    world.fill(node, world.producer(node), 4)
    world.at(7)
    view = world.model.queries.snapshot().queues[0]
    assert (view.flow_stopped, view.stopped_by, view.flow_stopped_count) == (True, "flow_stop_count", 1)
    assert (view.flow_stopped_for_s, view.flow_stopped_seconds) == (7.0, 7.0)
    assert (view.depth_msgs, view.promised_msgs, view.blocked_producers) == (4, 0, 1)
    broker = world.model.queries.snapshot().broker
    assert (broker.stopped_nodes, broker.uptime_s) == (1, 12.0)
    assert world.engine.now_ns - view.flow_stopped_since_ns == 7 * SECOND


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
    assert model.policies.apply(model.settings.policies) == []


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
    assert model.policies.apply(model.settings.policies) == []


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

    views = [Counted(view.policy) for view in policy_views(world.model.settings.policies)]
    world.model.queries.entities._more = {**world.model.queries.entities._more, "policy": lambda: views}
    page = world.model.queries.query("org.sluice.policy", ["name", "settings"], 100, 5)
    assert page.total == 500
    assert [row[0] for row in page.results] == read
    assert len(read) == 5


def test_a_message_that_nobody_takes_is_unrouted() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news", {})
    world.put(topic, 2)
    assert topic.unrouted == 2
    picky = world.subscribe(topic, "picky")
    picky.filter = Nothing()
    world.put(topic, 3)
    assert topic.unrouted == 5
    world.subscribe(topic, "all")
    world.put(topic, 4)
    assert topic.unrouted == 5


def test_a_message_that_a_bridge_takes_along_went_somewhere() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news", {})
    world.queue("copies")
    world.model.bridges.create("news->copies", {})
    world.put(topic, 2)
    assert (topic.unrouted, world.model.nodes.find("copies").gate.depth_msgs) == (0, 2)


class Nothing:
    """A filter that lets nothing through."""

    def matches(self, data: bytes) -> bool:
        return False
