"""Nodes made for links: whose they are, the link that comes back to one, and when they go."""

from __future__ import annotations

import pytest

from broker.amqp.control.lifetimes import (
    CLOSED,
    ON_CLOSE,
    ON_NO_LINKS,
    ON_NO_LINKS_OR_MESSAGES,
    ON_NO_MESSAGES,
    Kept,
)
from broker.amqp.control.temporary import TemporaryNodes
from broker.config.flow import BrokerDefaults
from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import BODY

KEY = ("alice", "app", "in", False)


@pytest.fixture
def alive() -> set[object]:
    return {"first", "second"}


@pytest.fixture
def nodes(world: AmqpWorld, alive: set[object]) -> TemporaryNodes:
    found = TemporaryNodes(world.model, BrokerDefaults(), alive)
    world.model.nodes.on_delete = found.gone
    return found


def test_a_node_is_another_connections_while_that_is_alive(nodes: TemporaryNodes, alive: set[object]) -> None:
    node = nodes.make("first", user="alice")
    assert not nodes.is_anothers(node, "first")
    assert nodes.is_anothers(node, "second")
    alive.discard("first")
    assert not nodes.is_anothers(node, "second")


def test_a_link_comes_back_to_its_node_once(nodes: TemporaryNodes, alive: set[object]) -> None:
    node = nodes.make("first")
    kept = Kept(CLOSED, 0, lambda: None)
    nodes.keep(node, kept)
    assert nodes.come_back(KEY, "second") is None, "it is attached"
    nodes.detached(kept, KEY)
    assert nodes.come_back(KEY, "second") is None, "its connection is alive"
    alive.discard("first")
    assert nodes.come_back(KEY, "second") == (node, kept)
    assert nodes.is_anothers(node, "third")
    assert nodes.come_back(KEY, "second") is None


def test_a_node_whose_time_is_over_is_not_come_back_to(nodes: TemporaryNodes) -> None:
    kept = Kept(CLOSED, 0, lambda: None)
    nodes.keep(nodes.make("first"), kept)
    nodes.detached(kept, KEY)
    kept.end()
    assert nodes.come_back(KEY, "first") is None


@pytest.mark.parametrize(
    ("policy", "with_message", "with_link"),
    [
        (ON_CLOSE, True, True),
        (ON_NO_LINKS, True, False),
        (ON_NO_MESSAGES, False, True),
        (ON_NO_LINKS_OR_MESSAGES, False, False),
    ],
)
def test_the_lifetime_policy_says_when_an_abandoned_node_goes(
    world: AmqpWorld, nodes: TemporaryNodes, policy: int, with_message: bool, with_link: bool
) -> None:
    full, linked, empty = (nodes.make("first") for _ in range(3))
    world.begun().attach_sender(linked.name)
    world.engine.intake.put_behind(full, BODY)
    for node in (full, linked, empty):
        nodes.abandon(node, policy)
    assert (full.deleted, linked.deleted, empty.deleted) == (with_message, with_link, True)


def test_what_is_deleted_by_somebody_else_is_forgotten(world: AmqpWorld, nodes: TemporaryNodes) -> None:
    node = nodes.make("first")
    node_kept = Kept(CLOSED, 0, lambda: None)
    nodes.keep(node, node_kept)
    nodes.detached(node_kept, KEY)
    world.model.nodes.delete(node.name, anyway=True)
    assert nodes.come_back(KEY, "first") is None
    nodes.abandon(node, ON_NO_MESSAGES)
    assert not nodes.orphans
