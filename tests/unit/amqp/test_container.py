"""The state that connections share: nodes that go or change reach their links, a trace ends by itself."""

from __future__ import annotations

import logging

import pytest

from broker.loggers import TRACE
from broker.manage.tracing import TraceRequest
from tests.unit.amqp.world import SECOND_NS, AmqpWorld
from tests.wire.frames import DETACH, FLOW, performative


def test_a_node_that_is_deleted_detaches_its_links_on_all_connections(world: AmqpWorld) -> None:
    first, second = world.begun("first"), world.begun("second")
    first.attach_sender("orders")
    second.attach_receiver("orders")
    second.attach_sender("other", handle=2)
    world.model.nodes.delete("orders", anyway=True)
    world.turn()
    for client in (first, second):
        assert client.expect(DETACH).condition == "amqp:resource-deleted"
    assert len(world.connection("second").wire.links) == 1


def test_new_settings_give_consumers_new_windows(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_receiver("orders")
    [consumer] = world.engine.topology.nodes["orders"].consumers
    world.model.nodes.update("orders", {"consumer_flow_limit": 3})
    assert consumer.window.limit == 3  # type: ignore[attr-defined]


def test_no_number_is_given_twice(world: AmqpWorld) -> None:
    numbers = [world.container.next_number() for _ in range(5)]
    assert len(set(numbers)) == 5


def test_a_trace_logs_so_many_frames_and_ends(world: AmqpWorld, caplog: pytest.LogCaptureFixture) -> None:
    client = world.begun("app")
    caplog.set_level(logging.INFO, TRACE)
    control = world.connection("app")
    assert world.container.trace(TraceRequest(control.id, 1, 60))
    client.send(performative(FLOW, 0, 100, 0, 100))
    world.until(lambda: control.wire.tap is None, "the end of the trace")
    assert "flow" in caplog.text


def test_a_trace_ends_at_its_time(world: AmqpWorld) -> None:
    world.begun("app")
    control = world.connection("app")
    assert world.container.trace(TraceRequest(control.id, 100, 5))
    world.container.timers.run(world.engine.turn.now_ns + 5 * SECOND_NS)
    assert control.wire.tap is None


def test_no_connection_of_that_name_is_traced(world: AmqpWorld) -> None:
    assert not world.container.trace(TraceRequest("c999", 1, 1))
