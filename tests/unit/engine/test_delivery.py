"""Consumers and browsers get what is ready, and nothing that may not go out yet."""

from __future__ import annotations

from broker.queues.queue import Reader
from tests.unit.engine.parts_world import PartsWorld, Window


def test_messages_are_spread_over_consumers_up_to_their_windows() -> None:
    world = PartsWorld()
    node = world.create()
    small, large = world.consumer(node, 2), world.consumer(node, 5)
    for _ in range(10):
        world.put(node)
    world.turn()
    assert (len(small.got), len(large.got), node.queue.ready) == (2, 5, 3)


def test_a_browser_sees_everything_and_takes_nothing() -> None:
    world = PartsWorld()
    node = world.create()
    for _ in range(3):
        world.put(node)
    browser = Window()
    browser.reader = Reader(browser, None, browses=True)
    world.engine.delivery.add_browser(node, browser)
    world.turn()
    assert (len(browser.got), node.queue.ready) == (3, 3)
    world.engine.delivery.remove_browser(node, browser)
    world.put(node)
    world.turn()
    assert len(browser.got) == 3


def test_nothing_goes_out_in_a_shutdown() -> None:
    world = PartsWorld()
    node = world.create()
    window = world.consumer(node)
    world.engine.actions.wind_down()
    world.put(node)
    world.turn()
    assert window.got == []


def test_a_durable_node_serves_once_it_is_on_disk_that_it_may() -> None:
    world = PartsWorld()
    node = world.create(durable=True)
    world.put(node, durable=True)
    world.settle()
    window = Window()
    world.engine.delivery.add_consumer(node, window)
    world.engine.end_turn()
    assert (window.got, world.engine.delivery.is_noted(node)) == ([], False)
    world.settle()
    assert (len(window.got), world.engine.delivery.is_noted(node)) == (1, True)


def test_messages_of_a_durable_node_go_out_only_while_they_are_this_brokers() -> None:
    world = PartsWorld()
    durable, fleeting = world.create(durable=True), world.create("fleeting")
    windows = [world.consumer(node) for node in (durable, fleeting)]
    world.settle()
    delivery = world.engine.delivery
    delivery.act_until(world.engine.turn.now_ns)
    for node in (durable, fleeting):
        world.put(node, durable=node is durable)
    world.settle()
    assert [len(window.got) for window in windows] == [0, 1]
    # Held for the lease, not for its mark.
    assert (delivery.held_back, delivery.is_noted(durable)) == (True, True)
    delivery.act_until(world.engine.turn.now_ns + 10**12)
    world.turn()
    assert [len(window.got) for window in windows] == [1, 1]
    assert not delivery.held_back


def test_what_waits_beyond_the_limit_is_shed_oldest_first() -> None:
    world = PartsWorld()
    node = world.create(pending_message_limit=2)
    window = world.consumer(node, 1)
    for body in "abcd":
        world.put(node, body)
    world.turn()
    assert (len(window.got), node.queue.ready, node.dropped) == (1, 2, 1)
    assert b"a" in window.got[0].data
