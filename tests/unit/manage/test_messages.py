"""The operators' verbs about messages, on a real engine."""

from __future__ import annotations

from tests.unit.manage_world import World


def test_purge_drops_what_is_ready_and_producers_go_on() -> None:
    world = World()
    node = world.queue(flow_stop_count=5)
    account = world.producer(node)
    world.fill(node, account, 5)
    assert node.gate.closed
    assert world.model.messages.purge("orders") == 5
    world.engine.end_turn()
    assert not node.gate.closed
    assert account.outstanding > 0
