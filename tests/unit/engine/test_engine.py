"""The turn: what is due, and in which order it is done."""

from __future__ import annotations

import pytest

from tests.unit.engine.parts_world import MS, Link, PartsWorld, Window


def test_a_message_is_dispatched_before_its_room_is_dealt() -> None:
    world = PartsWorld()
    node = world.create(flow_stop_count=1, flow_resume_count=1)
    link = Link()
    account = world.engine.producers.open(node, link, True)
    window = world.consumer(node)
    world.turn()
    assert link.credit == 1
    world.engine.intake.arrive(node, account, b"\x00\x53\x75\xa0\x01a", 0, False)
    world.turn()
    assert (len(window.got), link.credit) == (1, 1), "its room is taken until it is settled"
    world.engine.settlement.acknowledge(node, window.got[0])
    world.turn()
    assert link.credit == 2


def test_a_turn_that_broke_leaves_nothing_stuck() -> None:
    class Broken(Window):
        def send(self, entry: object) -> None:
            raise RuntimeError("a fault")

    world = PartsWorld()
    node = world.create()
    world.engine.delivery.add_consumer(node, Broken())
    world.put(node)
    with pytest.raises(RuntimeError, match="a fault"):
        world.engine.end_turn()
    world.engine.recover()
    world.engine.turn.mark_dirty(node)
    assert world.engine.turn.dirty == [node], "it may be noted again"


def test_the_next_deadline_is_the_earliest_of_all() -> None:
    world = PartsWorld()
    node = world.create()
    assert world.engine.next_deadline() == 0
    now_ns = world.engine.turn.now_ns
    world.put(node, ttl=5)
    assert world.engine.next_deadline() == now_ns + 5_000 * MS
    world.put(node, ttl=2)
    assert world.engine.next_deadline() == now_ns + 2_000 * MS


def test_without_a_store_nothing_waits_for_one() -> None:
    from broker.engine.engine import Engine

    engine = Engine()
    engine.begin_turn(MS)
    engine.seal()
    engine.attend_store()
    with pytest.raises(RuntimeError, match="without a store"):
        engine.durability.wait_for_disk(Waiting())


class Waiting:
    """A link that waits for the disk."""

    def stored(self, group: int) -> None:
        raise AssertionError("nothing is stored")
