"""Connections by address and user, and nodes by who made them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp.loop.client_quotas import LIMITS, TELL_NS, Quotas
from broker.config.broker import FIELDS
from broker.config.connection_limits import ConnectionLimit, ConnectionLimitType
from broker.config.limits import Limits
from broker.config.networks import network_of, site_of, written


def test_connections_from_one_address() -> None:
    quotas = Quotas(Limits(max_connections_per_address=2))
    for _ in range(2):
        assert quotas.admits("one")
        quotas.came("one")
    assert not quotas.admits("one")
    assert quotas.admits("other")
    quotas.went("one")
    assert quotas.admits("one")


def test_connections_of_one_user() -> None:
    quotas = Quotas(Limits(max_connections_per_user=1))
    assert quotas.enter("ann")
    assert not quotas.enter("ann")
    assert quotas.enter("bob")
    quotas.leave("ann")
    assert quotas.enter("ann")


def test_without_a_bound_there_is_none() -> None:
    quotas = Quotas(Limits(max_connections_per_address=0, max_connections_per_user=0))
    for _ in range(100):
        assert quotas.admits("one")
        assert quotas.enter("ann")
        quotas.came("one")


def test_what_is_counted_is_a_setting() -> None:
    assert {f"limits.{name}" for name in LIMITS} <= FIELDS.keys()


def test_the_network_of_an_address() -> None:
    assert network_of("10.0.0.1:5672") == "10.0.0.1"
    assert network_of(written("10.0.0.1", 5672)) == "10.0.0.1"
    assert network_of("[2001:db8::1]:5672") == "2001:db8::"
    assert network_of("somewhere:5672") == "somewhere"


def test_no_address_of_a_network_is_taken_for_another_network() -> None:
    """Written without brackets, a port makes another address of one whose network ends in zeros."""
    hosts = [f"2001:db8::{number:x}:b:c:d" for number in range(1, 50)]
    assert {network_of(written(host, 5672)) for host in hosts} == {"2001:db8::"}
    assert {network_of(host) for host in hosts} == {"2001:db8::"}


def test_the_site_of_an_address() -> None:
    assert site_of("[2001:db8:7:1::1]:5672") == site_of("2001:db8:7:2::9") == "2001:db8:7::"
    assert site_of("10.0.0.1:5672") == site_of("[::ffff:10.0.0.1]:5672") == site_of("somewhere") == ""


# --- rules


def limit(**said: object) -> ConnectionLimit:
    return ConnectionLimitType().parse(said)


RULES = (
    limit(user="boss", max_connections=0),
    limit(user="batch-*", max_connections=2),
    limit(group="web", max_connections=3),
    limit(listener="amqp://127.0.0.1:5673", max_connections=4),
    limit(virtual_host="shop", max_connections=1),
)


def entered(quotas: Quotas, *whose: Any) -> int:
    """How many connections of one kind may be, of twenty."""
    return sum(quotas.enter(*whose) for _ in range(20))


@pytest.mark.parametrize(
    ("whose", "most"),
    [
        (("boss", ["web"]), 20),
        (("batch-1", ["web"]), 2),
        (("till", ["web"]), 3),
        (("till", ["cobweb"]), 5),
        (("till",), 5),
        (("boss", [], "amqp://127.0.0.1:5673"), 4),
        (("boss", [], "amqp://127.0.0.1:5672"), 7),
        (("boss", [], "", "shop"), 1),
        (("boss", [], "", "other"), 6),
    ],
)
def test_the_first_rule_that_is_for_somebody_holds(whose: tuple[Any, ...], most: int) -> None:
    limits = Limits(
        max_connections_per_user=5, max_connections_per_listener=7, max_connections_per_virtual_host=6
    )
    quotas = Quotas(limits, RULES)
    assert entered(quotas, *whose) == most


def test_each_user_of_a_pattern_has_its_own_and_a_listener_is_shared() -> None:
    quotas = Quotas(Limits(), RULES)
    assert [entered(quotas, f"batch-{number}") for number in range(3)] == [2, 2, 2]
    port = "amqp://127.0.0.1:5673"
    assert [entered(quotas, name, [], port) for name in ("ann", "bob")] == [4, 0]


def test_other_rules_hold_for_those_who_come() -> None:
    quotas = Quotas(Limits(), RULES)
    assert entered(quotas, "batch-1") == 2
    quotas.reload(Limits(), [limit(user="batch-1", max_connections=1)])
    assert not quotas.enter("batch-1")
    quotas.leave("batch-1")
    assert not quotas.enter("batch-1")
    quotas.leave("batch-1")
    assert quotas.enter("batch-1")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.sampled_from(["", "x"])), max_size=60))
def test_whatever_comes_and_goes_is_counted(steps: list[tuple[bool, str, str]]) -> None:
    """A place that was given back is there again, and there are never more than the most."""
    quotas = Quotas(Limits(max_connections_per_user=3, max_connections_per_listener=4))
    there: list[tuple[str, str]] = []
    for comes, user, listener in steps:
        mine = sum(each[0] == user for each in there)
        here = sum(each[1] == listener for each in there)
        if comes:
            fits = mine < 3 and (not listener or here < 4)
            assert quotas.enter(user, [], listener) is fits
            if fits:
                there.append((user, listener))
        elif (user, listener) in there:
            there.remove((user, listener))
            quotas.leave(user, listener)
    for user, listener in there:
        quotas.leave(user, listener)
    assert entered(quotas, "a") == entered(quotas, "b") == 3


def test_refusals_are_told_once_a_second_with_how_many_there_were() -> None:
    quotas = Quotas(Limits())
    told = [quotas.may_tell("ann", number * TELL_NS // 10) for number in range(25)]
    assert [each for each in told if each] == [1, 10, 10]
    assert quotas.may_tell("bob", 0) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_connections": 3},
        {"user": "ann"},
        {"user": "ann", "group": "web", "max_connections": 3},
        {"usr": "ann", "max_connections": 3},
        {"user": "", "max_connections": 3},
        {"user": "ann", "max_connections": -1},
        {"listener": "somewhere", "max_connections": 1},
        [],
    ],
)
def test_another_rule_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"needs|expected|unknown|must|user|at least"):
        ConnectionLimitType().parse(wrong)
