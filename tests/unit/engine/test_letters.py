"""Where dead letters go, and what happens when that place changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker import constants
from broker.engine.node import Node
from broker.errors import NotFoundError
from tests.unit.engine.parts_world import PartsWorld


def rejecting(world: PartsWorld, address: str = "letters") -> Node:
    return world.create(dead_letter_address=address)


def test_no_way_leads_to_a_node_itself_or_to_one_nobody_finds() -> None:
    world = PartsWorld()
    assert world.engine.letters.way(rejecting(world, "orders")) is None
    node = world.create("other", dead_letter_address="nowhere")
    assert world.engine.letters.way(node) is None


def test_the_node_is_made_when_the_first_letter_needs_it() -> None:
    world = PartsWorld()
    node = rejecting(world)
    made: list[str] = []

    def find(address: str) -> Node:
        made.append(address)
        return world.create(address)

    world.engine.letters.find = find
    way = world.engine.letters.way(node)
    assert way is not None
    assert way.target.name == "letters"
    assert world.engine.letters.way(node) is way, "the way stands"
    assert made == ["letters"]


def test_what_waits_goes_to_the_new_place_once_the_address_changes() -> None:
    world = PartsWorld()
    full, free = world.create("full", max_count=1), world.create("free")
    world.put(full)
    node = rejecting(world, "full")
    world.put(node, "lost")
    window = world.consumer(node)
    world.engine.settlement.reject(node, window.got[0])
    assert (full.gate.depth_msgs, node.gate.depth_msgs) == (1, 1), "it waits where it was"
    node.settings = replace(node.settings, dead_letter_address="free")
    world.engine.letters.look_after(node)
    assert (node.gate.depth_msgs, free.gate.depth_msgs) == (0, 1)


def test_an_overflow_goes_to_the_dead_letter_node_once() -> None:
    world = PartsWorld()
    letters = world.create("letters", max_count=1, overflow="dead_letter", dead_letter_address="orders")
    node = world.create(max_count=1, overflow="dead_letter", dead_letter_address="letters")
    for _ in range(2):
        world.put(node)
    assert (node.gate.depth_msgs, letters.gate.depth_msgs, node.dead_lettered) == (1, 1, 1)
    world.put(node)
    assert (node.gate.depth_msgs, letters.gate.depth_msgs) == (1, 1), "a letter never comes back"


def test_an_overflow_that_is_refused_is_no_dead_letter() -> None:
    world = PartsWorld()
    letters = world.create("letters", max_count=1, flow_control=False, overflow="reject")
    world.put(letters)
    node = world.create(
        max_count=1, flow_control=False, overflow="dead_letter", dead_letter_address="letters"
    )
    world.put(node)
    assert world.put(node) == constants.REFUSED
    assert (node.dead_lettered, node.refused) == (0, 1)


def test_an_unknown_node_is_refused_by_name() -> None:
    world = PartsWorld()
    with pytest.raises(NotFoundError, match="nowhere"):
        world.engine.letters.find("nowhere")
