"""A producer that wants credit while there is room gets it within a bounded number of turns."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.property.world import MS, Producer, World

pytestmark = pytest.mark.flow


@settings(max_examples=examples(40), deadline=None)
@given(
    stop=st.integers(1, 60),
    count=st.integers(1, 40),
    busy=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
def test_every_producer_that_wants_to_send_does(stop: int, count: int, busy: int, seed: int) -> None:
    """Whoever wakes up after idling gets a message through, beside busy ones that take all they can."""
    world = World(flow_stop_count=stop)
    world.consume(1000)
    producers = [world.open() for _ in range(count)]
    world.turn()
    chooser = random.Random(seed)
    eager = producers[: min(busy, count)]
    for _ in range(50):
        step(world, eager)
    for waking in chooser.sample(producers, min(5, count)):
        before = waking.accepted
        turns = 0
        while waking.accepted == before:
            step(world, [*eager, waking])
            turns += 1
            # A resting link is probed at least once per round of all of them, every 100 ms.
            assert turns < 50 + 120 * count, f"{waking.name} starves"
        world.check()


def step(world: World, sending: Sequence[Producer], taken: int = 1000) -> None:
    """1 ms: who may send does, and so many are consumed."""
    for producer in world.producers:
        producer.hear()
    for producer in world.producers:
        if producer in sending:
            while producer.sent < producer.heard:
                producer.send(10, settled=False)
    world.settle(world.takers[0], taken)
    world.turn(MS)


@pytest.mark.parametrize(("stop", "count"), [(1000, 10), (1000, 50), (1000, 100), (100, 2)])
@pytest.mark.parametrize("size", [0, 50])
def test_credit_goes_out_in_batches_however_slowly_room_comes(stop: int, count: int, size: int) -> None:
    """FLOW §2 rule 4: a consumer takes 20 a millisecond, many producers want all they can get; evenly."""
    world = World(flow_stop_count=0 if size else stop, flow_stop_size=stop * size)
    world.consume(1000)
    producers = [world.open() for _ in range(count)]

    def run(steps: int) -> None:
        for _ in range(steps):
            step(world, producers, taken=20)

    run(100)
    before, grants = [producer.accepted for producer in producers], sum(p.grants for p in producers)
    run(400)
    moved = [producer.accepted - was for producer, was in zip(producers, before, strict=True)]
    assert abs(sum(moved) - 8000) <= 100
    assert sum(p.grants for p in producers) - grants <= sum(moved) / 4
    assert sum(moved) ** 2 / (count * sum(each * each for each in moved)) >= 0.95
    world.check()


def test_one_busy_producer_beside_idle_ones_has_most_of_the_room() -> None:
    """FLOW §2 rule 5: 1 busy beside 999 idle at stop 1000; the busy one's credit stays above a third."""
    world = World(flow_stop_count=1000)
    world.consume(2000)
    for _ in range(999):
        world.open()
        world.turn(MS // 10)
    busy = world.open()
    for _ in range(300):
        step(world, [busy])
    before = busy.accepted
    for _ in range(300):
        step(world, [busy])
    assert (busy.accepted - before) / 300 > 350


def test_equal_producers_share_a_gate_fairly() -> None:
    """Jain's index of 50 equal producers behind one gate (FLOW §2 rule 4)."""
    world = World(flow_stop_count=200)
    world.consume(1000)
    producers = [world.open() for _ in range(50)]
    for _ in range(400):
        step(world, producers)
    sent = [producer.accepted for producer in producers]
    assert sum(sent) ** 2 / (len(sent) * sum(n * n for n in sent)) > 0.95
