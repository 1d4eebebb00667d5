"""The operators' holds, on a real engine."""

from __future__ import annotations

import pytest

from broker.errors import OperatorError
from tests.unit.manage_world import World


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
    assert not any(node.gate.held for node in world.engine.topology.nodes.values())


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
    own = world.engine.lifecycle.create("$temporary/1", settings)
    assert world.model.operators.hold(None, True) == ["orders"]
    assert not own.gate.held
