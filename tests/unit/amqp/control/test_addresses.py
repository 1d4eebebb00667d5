"""Clients' addresses: which node, of which kind, in which virtual host."""

from __future__ import annotations

import pytest

from broker.amqp.control.addresses import Address, as_topic, inside, is_foreign, kind_of, outside, parsed

ADDRESSES = [
    ("orders", Address("orders")),
    ("/orders", Address("orders")),
    ("/", Address("/")),
    ("queue://orders", Address("orders", "queue")),
    ("topic:///news", Address("/news", "topic")),
    ("$management", Address("$management")),
]


@pytest.mark.parametrize(("text", "address"), ADDRESSES)
def test_an_address_as_clients_write_it(text: str, address: Address) -> None:
    assert parsed(text) == address


def test_the_first_capability_that_names_a_kind_counts() -> None:
    assert kind_of(["shared", "temporary-topic", "queue"]) == "topic"
    assert kind_of(["shared"]) == ""


def test_a_subscription_is_offered_as_a_topic_and_never_as_a_queue() -> None:
    assert as_topic(["queue", "shared"]) == ["shared", "topic"]
    assert as_topic(["temporary-topic"]) == ["temporary-topic"]


@pytest.mark.parametrize("host", ["", "shop"])
def test_a_name_comes_out_of_a_virtual_host_as_it_went_in(host: str) -> None:
    assert outside(host, inside(host, "orders")) == "orders"
    assert inside(host, "$management") == "$management"


def test_another_hosts_names_are_foreign_and_a_slash_alone_makes_no_host() -> None:
    hosts = ("shop", "bank")
    assert is_foreign("shop", "bank/orders", hosts)
    assert is_foreign("", "shop/orders", hosts)
    assert not is_foreign("shop", "shop/orders", hosts)
    assert not is_foreign("shop", "europe/orders", hosts)
