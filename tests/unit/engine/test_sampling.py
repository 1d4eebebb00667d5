"""Rates, once a second."""

from __future__ import annotations

from tests.unit.engine.parts_world import PartsWorld


def test_rates_are_what_came_and_went_in_a_second() -> None:
    world = PartsWorld()
    node = world.create()
    sample = world.engine.sampler.sample
    assert sample(world.engine.turn.now_ns) == 0
    window = world.consumer(node)
    for _ in range(10):
        world.put(node)
    world.turn(2_000)
    for entry in window.got[:4]:
        world.engine.settlement.acknowledge(node, entry)
    assert sample(world.engine.turn.now_ns) == 14
    assert (node.rate_in, node.rate_out) == (5.0, 2.0)
    world.turn(1_000)
    assert sample(world.engine.turn.now_ns) == 0
    assert (node.rate_in, node.rate_out) == (0.0, 0.0)


def test_dead_letters_that_were_refused_are_offered_again() -> None:
    world = PartsWorld()
    letters = world.create("letters", max_count=1)
    world.put(letters)
    node = world.create(dead_letter_address="letters")
    world.put(node)
    window = world.consumer(node)
    world.engine.settlement.reject(node, window.got[0])
    world.engine.actions.purge(letters)
    assert letters.gate.depth_msgs == 0
    world.engine.sampler.sample(world.engine.turn.now_ns)
    assert (letters.gate.depth_msgs, node.gate.depth_msgs) == (1, 0)
