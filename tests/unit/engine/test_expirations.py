"""When messages expire: by what they say, by what their node says, never early, each once."""

from __future__ import annotations

from tests.unit.engine.parts_world import EPOCH_MS, MS, PartsWorld


def test_a_message_expires_at_its_time_and_not_before() -> None:
    world = PartsWorld()
    node = world.create()
    world.put(node, ttl=0.5)
    assert world.engine.next_deadline() == world.engine.turn.now_ns + 500 * MS
    world.turn(499)
    assert node.gate.depth_msgs == 1
    world.turn(1)
    assert (node.gate.depth_msgs, node.expired) == (0, 1)
    assert world.engine.expirations.next_deadline() == 0


def test_the_earlier_of_ttl_and_absolute_expiry_holds() -> None:
    world = PartsWorld()
    node = world.create()
    now_s = EPOCH_MS / 1000 + 1
    world.put(node, ttl=10, expiry_time=now_s + 2)
    world.put(node, ttl=3, expiry_time=now_s + 20)
    world.turn(2_000)
    assert node.expired == 1
    world.turn(1_000)
    assert node.expired == 2


def test_a_node_s_own_limit_holds_for_messages_that_say_nothing() -> None:
    world = PartsWorld()
    node = world.create(message_ttl="1 s", max_ttl="2 s")
    world.put(node)
    world.put(node, ttl=60)
    world.turn(1_000)
    assert node.expired == 1
    world.turn(1_000)
    assert node.expired == 2


def test_what_a_consumer_holds_expires_when_it_comes_back() -> None:
    world = PartsWorld()
    node = world.create()
    window = world.consumer(node)
    world.put(node, ttl=0.1)
    world.turn(500)
    assert (len(window.got), node.expired) == (1, 0)
    world.engine.settlement.requeue(node, window.got.pop(), False)
    assert (node.gate.depth_msgs, node.expired) == (0, 1)


def test_what_is_not_on_disk_yet_expires_a_little_later() -> None:
    world = PartsWorld()
    node = world.create(durable=True)
    world.settle()
    world.put(node, durable=True, ttl=0.1)
    world.engine.begin_turn(world.engine.turn.now_ns + 200_000_000)
    assert node.expired == 0, "it is nobody's to take yet"
    world.settle()
    world.turn(600)
    assert (node.gate.depth_msgs, node.expired) == (0, 1)
