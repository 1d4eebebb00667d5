"""What holds for one node, and where each of its settings comes from (FLOW §6)."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.flow import BrokerDefaults
from broker.config.node import NodeSettings, SettingError
from broker.config.patterns import parse_pattern, parse_subscription_pattern
from broker.config.policies import Policy, PolicySet, Setting, tolerated
from broker.config.policy_files import parse_policies
from broker.config.yaml import SourcePlace
from broker.units import MB

POLICIES = parse_policies(
    """\
policies:
  - match: ">"
    max_count: 10
    producer_window: 50
  - match: "orders.>"
    max_count: 1000
    flow_stop_count: 900
  - match: "orders.eu"
    flow_resume_count: 500
    auto_create: false
  - match: "prices"
    kind: topic
    max_count: 77
    dispatch: fill
""",
    "p.yaml",
)


def test_each_setting_comes_from_the_most_specific_policy_that_has_it() -> None:
    found = POLICIES.effective("orders.eu")
    settings = found.settings
    assert (settings.max_count, settings.flow_stop_count, settings.flow_resume_count) == (1000, 900, 500)
    assert found.origins["max_count"] == "p.yaml:6:5"
    assert found.origins["flow_stop_count"] == "p.yaml:7:5"
    assert found.origins["flow_resume_count"] == "p.yaml:9:5"
    assert found.origins["producer_window"] == "p.yaml:4:5"
    assert found.origins["initial_credit"] == "default lowered to producer_window"
    assert found.origins["flow_stop_size"] == "default (80 % of max_size)"
    assert found.origins["max_size"] == "default"


def test_every_setting_has_an_origin() -> None:
    for address in ("orders.eu", "prices", "x"):
        names = {field.name for field in fields(NodeSettings)} | {"auto_create"}
        assert set(POLICIES.effective(address).origins) == names
        assert "" not in POLICIES.effective(address).origins.values()


def test_arguments_beat_every_policy_in_qpid_s_words_too() -> None:
    found = POLICIES.effective("orders.eu", {"qpid.max_count": "2000", "flow_resume_count": 600})
    assert (found.settings.max_count, found.settings.flow_resume_count) == (2000, 600)
    assert found.origins["max_count"] == found.origins["flow_resume_count"] == "argument"
    assert found.origins["flow_stop_count"] == "p.yaml:7:5"


def test_the_broker_s_defaults_name_their_line() -> None:
    places = {"max_size": "etc/broker.yaml:3:5", "default_flow_stop_threshold": "etc/broker.yaml:4:5"}
    defaults = BrokerDefaults(max_size=10 * MB, default_flow_stop_threshold=90, places=places)
    found = PolicySet().effective("a", {}, defaults)
    assert (found.settings.max_size, found.settings.flow_stop_size) == (10 * MB, 9 * MB)
    assert found.origins["max_size"] == "etc/broker.yaml:3:5"
    assert found.origins["flow_stop_size"] == "etc/broker.yaml:4:5 (90 % of max_size)"
    assert found.origins["flow_resume_size"] == "default (70 % of max_size)"


def test_a_queue_takes_from_its_topic_what_it_does_not_set() -> None:
    found = POLICIES.effective("alice", parents=["prices"])
    assert (found.settings.max_count, found.settings.dispatch) == (77, "fill")
    assert found.origins["max_count"] == "p.yaml:13:5 (by topic prices)"
    assert found.origins["producer_window"] == "p.yaml:4:5"


def test_a_queue_bound_to_a_topic_stays_a_queue() -> None:
    assert POLICIES.effective("prices").settings.kind == "topic"
    assert POLICIES.effective("alice", parents=["prices"]).settings.kind == "queue"


def test_arguments_and_the_queue_s_own_policy_beat_its_topic() -> None:
    own = parse_policies(
        "policies: [{match: alice, max_count: 5}, {match: prices, max_count: 7, dispatch: fill}]", "p.yaml"
    )
    assert own.effective("alice", parents=["prices"]).settings.max_count == 5
    assert own.effective("bob", parents=["prices"]).settings.max_count == 7
    assert own.effective("bob", {"max_count": 3}, parents=["prices"]).settings.max_count == 3


def test_a_policy_for_both_topic_and_queue_says_nothing_about_the_topic() -> None:
    found = POLICIES.effective("orders.us", parents=["weather"])
    assert found.settings.max_count == 1000


def test_kind_is_the_policy_s_then_the_capability_s_then_queue() -> None:
    topic = POLICIES.effective("prices", capability="queue")
    assert (topic.settings.kind, topic.origins["kind"]) == ("topic", "p.yaml:12:5")
    asked = POLICIES.effective("alice", capability="topic")
    assert (asked.settings.kind, asked.origins["kind"]) == ("topic", "capability")
    plain = POLICIES.effective("alice")
    assert (plain.settings.kind, plain.origins["kind"]) == ("queue", "default")


def test_auto_create_is_the_policy_s_then_the_broker_s() -> None:
    assert POLICIES.effective("orders.eu").auto_create is False
    assert POLICIES.effective("orders.eu").origins["auto_create"] == "p.yaml:10:5"
    assert POLICIES.effective("orders.us").auto_create is True
    assert POLICIES.effective("orders.us", auto_create=False).auto_create is False


def test_a_contradiction_that_merging_made_names_both_origins() -> None:
    with pytest.raises(SettingError) as refused:
        POLICIES.effective("orders.eu", {"max_count": 800})
    assert str(refused.value) == (
        "orders.eu: flow_stop_count 900 is more than max_count 800 "
        "(flow_stop_count from p.yaml:7:5, max_count from argument)"
    )


def test_a_shorthand_is_merged_key_by_key() -> None:
    policies = parse_policies(
        "policies:\n- {match: '>', flow_control: 60MB}\n- {match: a, flow_resume_size: 40MB}\n", "p.yaml"
    )
    found = policies.effective("a")
    assert (found.settings.flow_stop_size, found.settings.flow_resume_size) == (60 * MB, 40 * MB)
    assert found.origins["flow_stop_size"] == "p.yaml:2:16"
    assert policies.effective("b").origins["flow_resume_size"] == "p.yaml:2:16 (0: equal to flow_stop_size)"


def test_a_value_that_another_setting_changed_says_so() -> None:
    policies = parse_policies(
        "policies: [{match: a, byte_reservation: strict, flow_stop_size: 1MB, max_message_size: 2MB}]", "p"
    )
    found = policies.effective("a")
    assert found.settings.max_message_size == MB
    assert (
        found.origins["max_message_size"] == "p:1:70 (lowered to flow_stop_size: byte_reservation is strict)"
    )


def test_the_global_switch_is_named_where_it_overrides_a_node() -> None:
    defaults = BrokerDefaults(flow_control=False, places={"flow_control": "etc/broker.yaml:9:3"})
    found = PolicySet().effective("a", {"flow_control": True}, defaults)
    assert found.settings.flow_control is False
    assert (
        found.origins["flow_control"] == "argument (switched off for the whole broker: etc/broker.yaml:9:3)"
    )


LETTERS = parse_policies(
    """\
policies:
  - match: "#"
    dead_letter_address: dead
    max_delivery_count: 3
    overflow: dead_letter
    max_count: 10
  - match: "dead"
    max_count: 20
""",
    "p.yaml",
)


def test_the_place_of_dead_letters_keeps_its_own() -> None:
    """The pattern that names it matches it as well; it would send dead letters to itself, or drop them."""
    found = LETTERS.effective("orders")
    settings = found.settings
    assert (settings.dead_letter_address, settings.max_delivery_count, settings.overflow) == (
        "dead",
        3,
        "dead_letter",
    )
    assert found.origins["dead_letter_address"] == "p.yaml:3:5"
    place = LETTERS.effective("dead")
    settings = place.settings
    assert (settings.dead_letter_address, settings.max_delivery_count, settings.overflow) == ("", 0, "reject")
    assert settings.max_count == 20
    assert place.origins["dead_letter_address"] == "default (p.yaml:3:5 sends dead letters here)"
    assert place.origins["max_delivery_count"] == "default (p.yaml:4:5 sends dead letters here)"
    assert set(place.origins) == set(found.origins)


def test_a_ring_of_dead_letters_stays_a_ring() -> None:
    policies = parse_policies("policies: [{match: '#', dead_letter_address: d, overflow: ring}]", "p")
    assert policies.effective("d").settings.overflow == "ring"
    assert policies.effective("d", {"max_delivery_count": 5}).settings.max_delivery_count == 5
    assert policies.effective("d").settings.max_delivery_count == 0
    assert policies.effective("e").settings.max_delivery_count == 10


def test_nobody_is_its_own_place_of_dead_letters() -> None:
    with pytest.raises(SettingError) as refused:
        PolicySet().effective("a", {"dead_letter_address": "a"})
    assert str(refused.value) == "a: dead_letter_address is the node itself (from argument)"
    with pytest.raises(SettingError):
        LETTERS.effective("dead", {"dead_letter_address": "dead"})


def test_the_place_of_dead_letters_may_have_another_one() -> None:
    found = LETTERS.effective("dead", {"dead_letter_address": "buried"})
    assert (found.settings.dead_letter_address, found.settings.max_delivery_count) == ("buried", 3)


def test_deliveries_say_why_they_are_limited() -> None:
    found = PolicySet().effective("a", {"dead_letter_address": ""})
    assert found.origins["max_delivery_count"] == "default (none: there is no dead_letter_address)"
    for arguments in ({}, {"dead_letter_address": "d"}):
        found = PolicySet().effective("a", arguments)
        assert (found.settings.max_delivery_count, found.origins["max_delivery_count"]) == (10, "default")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("DLQ", "dead letters come here"),
        ("dead", "dead letters come here"),
        ("of.news", "dead letters come here"),
        ("$sluice/events", "the node is the broker's own"),
    ],
)
def test_a_place_of_dead_letters_sends_none_on(address: str, reason: str) -> None:
    """Not by default, nor because a wide pattern limits deliveries: they would be dropped."""
    policies = parse_policies(
        "policies:\n"
        "  - {match: '>', max_delivery_count: 3}\n"
        "  - {match: orders, dead_letter_address: dead}\n"
        "  - {match: news, kind: subscription, dead_letter_address: of.news}\n",
        "p",
    )
    found = policies.effective(address)
    assert found.settings.dead_letter_address == ""
    assert found.origins["dead_letter_address"] == f"default (none: {reason})"
    if not address.startswith("$"):
        assert found.settings.max_delivery_count == 0
        assert found.origins["max_delivery_count"] == f"default (none: {reason}; not p:2:18)"
        assert policies.effective(address, {"max_delivery_count": 5}).settings.max_delivery_count == 5
        named = policies.effective(address, {"dead_letter_address": "further"}).settings
        assert (named.dead_letter_address, named.max_delivery_count) == ("further", 3)
    below = policies.of_subscription(address, "container.link").settings
    assert below.dead_letter_address == ""
    assert policies.effective("other").settings.dead_letter_address == "DLQ"
    assert policies.of_subscription("other", "container.link").settings.dead_letter_address == "DLQ"


@pytest.mark.parametrize("address", ["DLQ", "dead", "of.news"])
def test_no_wide_pattern_ends_the_lives_of_dead_letters(address: str) -> None:
    lives = "message_ttl: 1h, max_ttl: 2h, expire_after: 3h, durable: false"
    policies = parse_policies(
        "policies:\n"
        f"  - {{match: '>', {lives}}}\n"
        "  - {match: orders, dead_letter_address: dead}\n"
        "  - {match: news, kind: subscription, dead_letter_address: of.news}\n"
        "  - {match: of.news, message_ttl: 5s}\n",
        "p",
    )
    found = policies.effective(address)
    settings = found.settings
    own = 5000 if address == "of.news" else 0
    assert (settings.message_ttl_ms, settings.max_ttl_ms, settings.expire_after_ms) == (own, 0, 0)
    # A place that somebody names is as durable as the policies say.
    assert settings.durable == (address == "DLQ")
    assert found.origins["max_ttl_ms"] == "default (none: dead letters come here; not p:2:35)"
    other = policies.effective("orders").settings
    assert (other.message_ttl_ms, other.expire_after_ms, other.durable) == (3_600_000, 10_800_000, False)


def test_where_there_are_no_dead_letters_at_all_a_wide_pattern_holds() -> None:
    policies = parse_policies("policies: [{match: '>', message_ttl: 1h, durable: true}]", "p")
    nowhere = BrokerDefaults(dead_letter_address="")
    assert policies.effective("orders", defaults=nowhere).settings.message_ttl_ms == 3_600_000
    own = policies.effective("DLQ", {"message_ttl": "7s"}).settings
    assert (own.message_ttl_ms, own.durable) == (7000, True)


def test_the_default_place_of_dead_letters_is_a_durable_queue_unless_a_policy_says_otherwise() -> None:
    found = PolicySet().effective("DLQ", capability="topic").settings
    assert (found.kind, found.durable) == ("queue", True)
    policies = parse_policies("policies: [{match: DLQ, durable: false}]", "p")
    assert not policies.effective("DLQ").settings.durable
    elsewhere = BrokerDefaults(dead_letter_address="shop/DLQ")
    assert PolicySet().effective("shop/DLQ", defaults=elsewhere).settings.durable
    assert not PolicySet().effective("DLQ", defaults=elsewhere).settings.durable


_patterns = st.lists(
    st.sampled_from(["a", "*", "a.b", "a.*", "a.>", "a.#", "*.b", "*.*", ">", "#"]), unique=True
)


@given(_patterns, st.sampled_from(["a", "a.b", "a.b.c", "b.b"]))
def test_the_first_match_by_rank_wins_whatever_the_order_of_the_files(texts: list[str], address: str) -> None:
    def policy(index: int, text: str) -> Policy:
        setting = Setting("max_count", index + 1, text)
        return Policy(parse_pattern(text), (setting,), None, "", SourcePlace("p", index + 1, 1))

    made = [policy(index, text) for index, text in enumerate(texts)]
    forward, backward = PolicySet.of(made), PolicySet.of(reversed(made))
    origin = forward.effective(address).origins["max_count"]
    assert origin == backward.effective(address).origins["max_count"]
    matching = [p.pattern for p in made if p.pattern.matches(address)]
    best = min(matching, key=lambda pattern: pattern.rank).text if matching else "default (none)"
    assert origin == best


def test_who_has_to_be_there_goes_without_what_contradicts_and_says_so() -> None:
    wanted = {"max_count": 800, "flow_resume_count": 850, "consumer_flow_min": 9, "consumer_flow_limit": 5}
    found = tolerated(lambda without: POLICIES.effective("orders.eu", wanted, without=without))
    settings = found.settings
    assert (settings.max_count, settings.flow_stop_count, settings.consumer_flow_limit) == (800, 640, 5)
    assert settings.flow_resume_count <= settings.flow_stop_count
    assert [fault.rpartition("without that ")[2] for fault in found.faults] == [
        "flow_stop_count",
        "flow_resume_count",
        "consumer_flow_min",
    ]
    assert "flow_stop_count from p.yaml:7:5" in found.faults[0]


def test_what_is_left_out_is_as_if_nobody_had_set_it_there() -> None:
    policies = parse_policies(
        "policies: [{match: a, flow_stop_count: 50, flow_resume_count: 30, max_count: 90}]", "p.yaml"
    )
    found = tolerated(lambda without: policies.effective("a", {"flow_resume_count": 70}, without=without))
    assert (found.settings.flow_resume_count, found.origins["flow_resume_count"]) == (30, "p.yaml:1:44")


@pytest.mark.parametrize(
    "arguments",
    [
        {"dead_letter_address": "a", "max_delivery_count": 3, "overflow": "dead_letter"},
        {"overflow": "dead_letter", "max_count": 5},
        {"when_full": "reject_after", "flow_resume_size": "9MB", "flow_stop_size": "5MB"},
    ],
)
def test_no_message_is_lost_by_what_is_left_out(arguments: dict[str, object]) -> None:
    found = tolerated(lambda without: PolicySet().effective("a", arguments, without=without))
    settings = found.settings
    assert found.faults
    assert (settings.dead_letter_address, settings.max_delivery_count) == ("DLQ", 10)
    assert (settings.overflow, settings.when_full) == ("reject", "block")


words = st.sampled_from(["a", "b", "*"])
patterns = st.tuples(st.lists(words, max_size=3), st.sampled_from(["a", "b", "*", ">", "#"])).map(
    lambda parts: ".".join([*parts[0], parts[1]])
)
owners = st.sampled_from(["", "/c.l", "/c.*", "/#"])


@given(
    st.sets(patterns, max_size=12),
    st.sets(st.tuples(patterns, owners).map("".join), max_size=12),
    st.lists(st.sampled_from(["a", "b", "c", "", "*", "#"]), min_size=1, max_size=4).map(".".join),
)
def test_what_matches_is_found_in_its_order_however_it_is_looked_up(
    of_nodes: set[str], of_subscriptions: set[str], address: str
) -> None:
    """Against every policy in turn."""
    place = SourcePlace("p.yaml", 1, 1)
    nodes = [Policy(parse_pattern(text), (), None, "", place) for text in sorted(of_nodes)]
    others = [
        Policy(parse_subscription_pattern(text), (), None, "", place, of_subscriptions=True)
        for text in sorted(of_subscriptions)
    ]
    policies = PolicySet.of([*nodes, *others])
    assert policies.matching(address) == [
        each for each in policies.policies if each in nodes and each.pattern.matches(address)
    ]
    assert policies.matching_subscription(address, "c.l") == [
        each
        for each in policies.policies
        if each in others and each.pattern.matches_subscription(address, "c.l")
    ]
