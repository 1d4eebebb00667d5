"""Parked messages wait their turn or their time, whichever ends first."""

from __future__ import annotations

from broker.engine.parking import LENDING_NS
from tests.unit.engine.parts_world import MS, Link, PartsWorld


def test_a_parked_message_is_admitted_when_there_is_room() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=1)
    world.put(node)
    link = Link()
    account = world.engine.producers.open(node, link, False)
    world.engine.parking.park(node, account, "m", 10, False)
    world.turn()
    assert (link.admitted, node.parked) == ([], 1)
    assert world.engine.depths.memory.parked_bytes > 10
    world.engine.actions.purge(node)
    world.turn()
    assert link.admitted == ["m"]


def test_a_message_is_refused_once_the_node_s_time_is_over() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=1, when_full="reject_after", reject_after="100 ms")
    world.put(node)
    link = Link()
    account = world.engine.producers.open(node, link, False)
    world.engine.parking.park(node, account, "m", 10, False)
    assert node.refuse_ns == world.engine.turn.now_ns + 100 * MS
    world.turn(99)
    assert link.refused == []
    world.turn(1)
    assert (link.refused, node.refused, node.refuse_ns) == (["m"], 1, 0)


def test_a_settled_message_is_never_refused() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=1, when_full="reject")
    world.put(node)
    link = Link()
    account = world.engine.producers.open(node, link, False)
    world.engine.parking.park(node, account, "m", 10, True)
    world.turn(10 * LENDING_NS // MS)
    assert (link.refused, len(account.parked)) == ([], 1)


def test_a_shorter_time_holds_for_those_who_wait_already() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=1, when_full="reject_after", reject_after="1 h")
    world.put(node)
    link = Link()
    world.engine.parking.park(node, world.engine.producers.open(node, link, False), "m", 10, False)
    other = world.create("other", flow_stop_count=1, when_full="reject_after", reject_after="1 s")
    assert other.settings is not None
    world.engine.configurator.change(node, other.settings)
    world.turn(1_000)
    world.turn()
    assert link.refused == ["m"]
