"""Which names an operator's stops and starts concern."""

from __future__ import annotations

import pytest

from broker.manage.holds import ProducerHolds


def held(rules: list[tuple[str, bool]], name: str) -> bool:
    return bool(ProducerHolds(rules).holding(name))


def test_the_last_rule_that_matches_decides() -> None:
    rules = [("orders.>", True), ("orders.eu", False)]
    assert held(rules, "orders.us")
    assert not held(rules, "orders.eu")
    assert held([*rules, ("orders.eu", True)], "orders.eu")


@pytest.mark.parametrize(
    ("pattern", "name", "meant"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.eu.north", False),
        ("orders.>", "orders.eu.north", True),
        ("orders.>", "orders", False),
        ("orders.#", "orders", True),
        (">", "a..b", True),
        (">", "$temporary/1", False),
    ],
)
def test_patterns(pattern: str, name: str, meant: bool) -> None:
    assert held([(pattern, True)], name) is meant


def test_the_pattern_that_holds_is_told() -> None:
    holds = ProducerHolds([(">", True), ("orders.*", True)])
    assert holds.holding("orders.eu") == "orders.*"
    assert holds.holding("stock") == ">"


@pytest.mark.parametrize(
    ("earlier", "later", "left"),
    [
        ("orders.*", "orders.>", [("orders.>", True)]),
        ("orders.>", "orders.*", [("orders.>", True), ("orders.*", True)]),
        ("orders.#", "orders.>", [("orders.#", True), ("orders.>", True)]),
        ("orders.#", ">", [(">", True)]),
        ("orders.eu", "orders.*", [("orders.*", True)]),
        ("orders.*", "orders.eu", [("orders.*", True), ("orders.eu", True)]),
    ],
)
def test_a_rule_replaces_what_it_covers(earlier: str, later: str, left: list[tuple[str, bool]]) -> None:
    assert ProducerHolds([(earlier, True), (later, True)]).rules == left


def test_when_nothing_is_held_no_rule_is_left() -> None:
    assert ProducerHolds([("orders.*", True), ("orders.eu", False), (">", False)]).rules == []
    assert ProducerHolds([("stock", False)]).rules == []


def test_rules_survive_being_written_down() -> None:
    rules = [("orders.>", True), ("orders.eu", False)]
    assert ProducerHolds(ProducerHolds(rules).rules).rules == rules
