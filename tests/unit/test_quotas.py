"""Connections by address and user, and nodes by who made them."""

from __future__ import annotations

from broker.amqp.quotas import LIMITS, Quotas
from broker.networks import network_of, site_of, written
from broker.settings import FIELDS, Limits


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
