"""Addresses of links and relayed messages, as the nodes they come to or as the errors that refuse them."""

from __future__ import annotations

import pytest

from broker.manage.access import TEMPORARY
from tests.unit.amqp.world import AmqpWorld, attach
from tests.wire.frames import DETACH, OPEN, Symbol, performative

REFUSALS = [
    ("$nothing", "amqp:not-found"),
    ("shop/orders", "amqp:not-found"),
]


@pytest.mark.parametrize("address", ["orders", "/orders", "queue://orders"])
def test_addresses_of_other_brokers_are_the_same_node(world: AmqpWorld, address: str) -> None:
    world.begun().attach_sender(address)
    assert [name for name in world.engine.topology.nodes if not name.startswith("$")] == ["orders"]
    assert not world.engine.topology.nodes["orders"].is_topic


def test_the_kind_of_an_address_makes_a_topic(world: AmqpWorld) -> None:
    world.begun().attach_sender("topic://news")
    assert world.engine.topology.nodes["news"].is_topic


@pytest.mark.parametrize(("address", "condition"), REFUSALS)
def test_a_node_that_is_not_the_clients_is_refused(address: str, condition: str) -> None:
    world = AmqpWorld(hosts=["shop"])
    try:
        client = world.begun()
        client.attach_sender(address)
        assert client.expect(DETACH).condition == condition
    finally:
        world.close()


def test_a_virtual_host_stands_before_its_clients_names() -> None:
    world = AmqpWorld(hosts=["shop"])
    try:
        client = world.client().authenticate()
        client.send(performative(OPEN, "till", "shop", 65_536, 100))
        client.read_bytes(8)
        client.expect(OPEN)
        client.begin().attach_sender("orders")
        assert "shop/orders" in world.engine.topology.nodes
    finally:
        world.close()


def test_a_dynamic_node_has_a_name_of_its_own_and_goes_with_its_link(world: AmqpWorld) -> None:
    client = world.begun()
    answer = attach(client, "in", 0, source=[None, None, None, None, True], target=[])
    address = str(answer.field(5).value[0])  # type: ignore[attr-defined]
    assert address.startswith(f"{TEMPORARY}/")
    assert address in world.engine.topology.nodes
    client.send(performative(DETACH, 0, True))
    client.expect(DETACH)
    assert address not in world.engine.topology.nodes


def test_settings_that_are_none_refuse_the_link(world: AmqpWorld) -> None:
    client = world.begun()
    properties = {Symbol("qpid.max_count"): "many"}
    attach(client, "in", 0, source=["orders", None, None, None, None, properties], target=[])
    assert client.expect(DETACH).condition == "amqp:invalid-field"
    assert "orders" not in world.engine.topology.nodes
