"""Permissions of one connection's user: asked at an attach, held for the link, lost when the rules change."""

from __future__ import annotations

import pytest

from broker.amqp.control.permissions import DeniedError, LinkPermissions
from broker.security.acl import Action
from broker.security.identity import ANONYMOUS, BROKER, Identity
from broker.security.rules import parse_acl
from tests.unit.amqp.world import AmqpWorld

ALICE = Identity("alice")
RULES = """rules:
  - {allow: connect, users: alice}
  - {allow: [send, create], users: alice, addresses: "orders.>"}
  - {allow: browse, users: alice, addresses: other}
"""


@pytest.fixture
def permissions(world: AmqpWorld) -> LinkPermissions:
    world.model.authority.replace(parse_acl(RULES, "acl.yaml"), ())
    return LinkPermissions(world.model, ALICE)


def test_a_user_connects_who_is_named(world: AmqpWorld, permissions: LinkPermissions) -> None:
    assert permissions.connects("") == ""
    assert "bob" in LinkPermissions(world.model, Identity("bob")).connects("")


def test_a_missing_node_needs_the_permission_to_create_it(permissions: LinkPermissions) -> None:
    permissions.require_node(Action.SEND, "orders.eu")
    with pytest.raises(DeniedError) as fault:
        permissions.require_node(Action.BROWSE, "other")
    assert fault.value.condition == "amqp:unauthorized-access"


def test_a_refusal_does_not_say_whether_there_is_such_a_node(permissions: LinkPermissions) -> None:
    with pytest.raises(DeniedError) as fault:
        permissions.require(Action.RECEIVE, "secret")
    assert "alice" in fault.value.description


def test_a_link_is_lost_with_the_rule_that_it_was_held_by(
    world: AmqpWorld, permissions: LinkPermissions
) -> None:
    permissions.hold(1, Action.SEND, "orders.eu")
    permissions.hold(2, Action.BROWSE, "other")
    assert permissions.lost({}) == []
    world.model.authority.replace(parse_acl('rules: [{allow: browse, addresses: ">"}]', "acl.yaml"), ())
    assert [handle for handle, _ in permissions.lost({3: ["orders.eu"]})] == [1, 3]
    permissions.drop(1)
    assert permissions.lost({}) == []


def test_receiving_from_the_brokers_own_needs_another_permission(permissions: LinkPermissions) -> None:
    assert permissions.reading("$sluice/events", False)[0] is Action.MANAGE_READ
    assert permissions.reading("orders", True) == (Action.BROWSE, "orders")
    assert permissions.reading("orders", False) == (Action.RECEIVE, "orders")


@pytest.mark.parametrize(
    ("identity", "maker", "subscriber"), [(ALICE, "alice", "alice"), (ANONYMOUS, "anonymous", "")]
)
def test_nodes_and_subscriptions_belong_to_the_user(
    world: AmqpWorld, identity: Identity, maker: str, subscriber: str
) -> None:
    permissions = LinkPermissions(world.model, identity)
    assert (permissions.maker, permissions.subscriber) == (maker, subscriber)


def test_the_broker_makes_nodes_for_nobody(world: AmqpWorld) -> None:
    assert LinkPermissions(world.model, BROKER).maker == ""
