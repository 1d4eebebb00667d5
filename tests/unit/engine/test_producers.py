"""Producers' accounts come and go with their links."""

from __future__ import annotations

import pytest

from broker.engine.node import Node
from tests.unit.engine.parts_world import Link, PartsWorld


def test_the_credit_of_a_closed_account_goes_to_whoever_waits() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=10)
    going, staying = Link(), Link()
    account = world.engine.producers.open(node, going, True)
    world.turn()
    assert going.credit == 10
    other = world.engine.producers.open(node, staying, True)
    world.turn()
    assert staying.credit == 0
    world.engine.producers.close(node, account)
    world.turn()
    assert staying.credit > 0
    assert other.wants() == 0, "its window is full"


def test_an_account_that_promises_nothing_holds_no_credit() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=10)
    link = Link()
    world.engine.producers.open(node, link, False)
    world.turn()
    assert (link.credit, node.gate.promised_msgs) == (0, 0)


@pytest.mark.parametrize(
    ("when_full", "at_once"), [("block", False), ("reject", True), ("reject_after", True)]
)
def test_credit_promises_no_room_where_sends_are_to_fail(when_full: str, at_once: bool) -> None:
    world = PartsWorld()
    node = world.create(
        when_full=when_full, **({"reject_after": "1 s"} if when_full == "reject_after" else {})
    )
    assert world.engine.producers.reject_at_once(node) is at_once


def test_a_node_without_settings_takes_no_producer() -> None:
    world = PartsWorld()
    with pytest.raises(RuntimeError, match="never configured"):
        world.engine.producers.open(Node("bare", "queue"), Link(), True)
