"""Rules: who they concern, which of them decides, and what a user's name can't do to a pattern."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.patterns import covers, parse_pattern, words_of
from broker.security.acl import NO_MATCH, NO_RULES, OPEN, Acl, Action, Decision, Rule
from broker.security.identity import ANONYMOUS, Identity
from broker.security.pattern import Template, parse_template

ALICE, BOB = Identity("alice", frozenset({"producers"})), Identity("bob")
SEND, RECEIVE, CONNECT = Action.SEND, Action.RECEIVE, Action.CONNECT


def rule(
    *addresses: str,
    allows: bool = True,
    actions: tuple[Action, ...] = (SEND,),
    users: str = "",
    groups: str = "",
    hosts: str = "",
) -> Rule:
    who = frozenset(users.split()), frozenset(groups.split()), frozenset(hosts.split())
    return Rule(allows, actions, *who, tuple(map(Template, addresses or ("#",))), "acl.yaml")


def allowed(
    rules: list[Rule], address: str, who: Identity = ALICE, action: Action = SEND, host: str = ""
) -> bool:
    return Acl(tuple(rules)).decide(who, action, host, address).allowed


def test_without_rules_everything_is_allowed() -> None:
    assert OPEN.decide(ANONYMOUS, Action.DELETE, "", "orders") == Decision(True, NO_RULES)


def test_with_one_rule_everything_else_is_denied() -> None:
    acl = Acl((rule("orders", users="alice"),))
    assert acl.decide(BOB, SEND, "", "orders") == Decision(False, NO_MATCH)
    assert not acl.decide(ALICE, RECEIVE, "", "orders").allowed
    assert not acl.decide(ALICE, SEND, "", "orders.eu").allowed


def test_the_first_that_matches_decides_and_is_told() -> None:
    rules = [rule("orders.secret", allows=False), rule("orders.#"), rule("orders.eu", allows=False)]
    assert not allowed(rules, "orders.secret")
    assert allowed(rules, "orders.eu")
    told = Acl(tuple(rules)).decide(ALICE, SEND, "", "orders.secret").rule
    assert told == "acl.yaml: deny send at orders.secret for everybody"


@pytest.mark.parametrize(
    ("who", "identity", "wanted"),
    [
        ({}, BOB, True),
        ({}, ANONYMOUS, True),
        ({"users": "alice"}, ALICE, True),
        ({"users": "alice"}, BOB, False),
        ({"groups": "producers"}, ALICE, True),
        ({"groups": "producers"}, BOB, False),
        ({"users": "bob", "groups": "producers"}, ALICE, True),
        ({"users": "bob", "groups": "producers"}, BOB, True),
        ({"users": "bob", "groups": "producers"}, ANONYMOUS, False),
        ({"groups": "alice"}, ALICE, False),
    ],
)
def test_whom_a_rule_is_for(who: dict[str, str], identity: Identity, wanted: bool) -> None:
    mine = rule(users=who.get("users", ""), groups=who.get("groups", ""))
    assert allowed([mine], "orders", identity) is wanted


@pytest.mark.parametrize(
    ("hosts", "host", "wanted"),
    [
        ("", "", True),
        ("", "shop", True),
        ("shop", "shop", True),
        ("shop", "", False),
        ("/", "", True),
        ("/", "shop", False),
    ],
)
def test_in_which_virtual_host(hosts: str, host: str, wanted: bool) -> None:
    assert allowed([rule(hosts=hosts)], "orders", host=host) is wanted


def test_connecting_is_about_no_address() -> None:
    actions = (CONNECT, SEND)
    assert allowed([rule(actions=actions)], "", action=CONNECT)
    for pattern in ("orders", "*", ">", "orders.#", "${user}"):
        assert not allowed([rule(pattern, actions=actions)], "", action=CONNECT)
    denied = rule("orders.#", allows=False, actions=tuple(Action))
    assert allowed([denied, rule(actions=tuple(Action))], "", action=CONNECT)


# --- patterns of addresses


@pytest.mark.parametrize(
    ("rules", "address", "wanted"),
    [
        (["orders.#"], "orders.*", True),
        (["orders.*"], "orders.*", True),
        (["orders.*"], "orders.>", False),
        (["orders.>"], "orders.#", False),
        (["orders.#"], "orders.>", True),
        (["*.eu"], "orders.eu", True),
        (["orders.eu"], "orders.*", False),
        (["orders.eu", "orders.*"], "orders.*", True),
        (["-orders.eu", "orders.*"], "orders.*", False),
        (["-orders.eu", "orders.*"], "orders.us", True),
        (["orders.*", "-orders.eu"], "orders.*", True),
        (["-orders.eu.x", "orders.*"], "orders.*", True),
        (["-news.#", "#"], "*.eu", False),
        (["#"], "a.>.b", True),
        (["a.*"], "a.>.b", False),
    ],
)
def test_a_pattern_is_allowed_as_a_whole(rules: list[str], address: str, wanted: bool) -> None:
    made = [rule(text.removeprefix("-"), allows=not text.startswith("-")) for text in rules]
    assert allowed(made, address) is wanted


WORD = st.sampled_from(["a", "b", "*", "c"])
LITERAL = st.sampled_from(["a", "b", "c"])
PATTERNS = st.tuples(st.lists(WORD, max_size=3), st.sampled_from(["", ">", "#", "a", "*"])).map(
    lambda parts: ".".join([*parts[0], *([parts[1]] if parts[1] else [])]) or "a"
)
ADDRESSES = st.lists(LITERAL, min_size=1, max_size=4).map(".".join)
EVERY = [".".join(words) for n in range(1, 5) for words in product("abc", repeat=n)]


@given(PATTERNS, ADDRESSES)
def test_patterns_mean_what_those_of_policies_mean(pattern: str, address: str) -> None:
    words = parse_template(pattern).words("nobody")
    assert covers(words, words_of(address)) == parse_pattern(pattern).matches(address)


RULES = st.lists(st.tuples(st.booleans(), PATTERNS), min_size=1, max_size=5)


@given(RULES, ADDRESSES)
def test_the_first_match_decides_whatever_stands_behind(rules: list[tuple[bool, str]], address: str) -> None:
    made = [rule(pattern, allows=allows) for allows, pattern in rules]
    wanted = next((allows for allows, text in rules if parse_pattern(text).matches(address)), False)
    assert allowed(made, address) is wanted
    for cut in range(1, len(made)):
        if any(parse_pattern(text).matches(address) for _, text in rules[:cut]):
            assert allowed(made[:cut], address) is wanted


@given(RULES, PATTERNS)
def test_nobody_gets_a_pattern_with_an_address_he_may_not(rules: list[tuple[bool, str]], asked: str) -> None:
    made = [rule(pattern, allows=allows) for allows, pattern in rules]
    if allowed(made, asked):
        for each in EVERY:
            if parse_pattern(asked).matches(each):
                assert allowed(made, each), each


# --- users' names in patterns

NAMES = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["*", ">", "#", "a.>", "#.b", "${user}", "*.*", "a/b", ".", "..", "\x1b[31m", "user"]
)


@given(NAMES, ADDRESSES)
def test_a_users_name_is_text(name: str, address: str) -> None:
    """It means the address that is spelt like it, and no other."""
    mine = rule("private.${user}")
    who = Identity(name)
    if address != name:
        assert not allowed([mine], f"private.{address}", who)
    words = parse_template("private.${user}").words(name)
    assert [each for each in words if not isinstance(each, str)] == []
    assert ".".join(map(str, words)) == f"private.{name}"


@given(NAMES)
def test_a_name_of_wildcards_opens_nothing(name: str) -> None:
    mine = [rule("in-${user}.>")]
    assert not allowed(mine, "in-alice.orders", Identity(name)) or name == "alice"
    assert not allowed(mine, "in-.orders", Identity(name))


def test_within_a_word() -> None:
    assert allowed([rule("in-${user}.*")], "in-alice.orders")
    assert not allowed([rule("in-${user}.*")], "in-bob.orders")
    assert allowed([rule("${user}.${user}")], "alice.alice")


@given(NAMES, PATTERNS)
def test_names_of_users_and_groups_are_compared_as_they_are(name: str, pattern: str) -> None:
    assert allowed([rule(users="alice")], "orders", Identity(name)) is (name == "alice")
    groups = Identity("x", frozenset({name}))
    assert allowed([rule(groups="staff")], "orders", groups) is (name == "staff")
    assert not allowed([rule(users="alice")], "orders", Identity(pattern))
