"""Sessions of a connection: begun, asked for their state, ended with their links."""

from __future__ import annotations

from broker.amqp.control.attached import SESSION_FRAMES
from broker.amqp.control.sessions import CONNECTION_OUTPUT, SESSION_OUTPUT
from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import BEGIN, END, FLOW, performative, transfer


def test_a_session_is_answered_with_its_channel_and_window(world: AmqpWorld) -> None:
    client = world.begun()
    [begun] = [frame for frame in client.log if frame.code == BEGIN]
    assert (begun.field(0), begun.field(2)) == (0, SESSION_FRAMES)


def test_an_ended_session_takes_its_links_and_no_others(world: AmqpWorld) -> None:
    client = world.begun().begin(channel=1)
    client.attach_sender("orders", name="a", handle=0)
    client.attach_sender("orders", name="b", handle=0, channel=1)
    control = world.connection()
    assert sorted(control.channels()) == [0, 1]
    client.send(performative(END, channel=1))
    assert client.expect(END).condition is None
    assert control.channels() == [0]
    assert [link.name for link in control.wire.links] == ["a"]


def test_a_session_that_is_asked_for_its_state_tells_it(world: AmqpWorld) -> None:
    client = world.begun()
    client.send(performative(FLOW, 0, 100, 0, 100, None, None, None, None, None, True))
    flow = client.expect(FLOW)
    assert flow.field(4) is None
    assert flow.field(1) == SESSION_FRAMES


def test_a_session_that_breaks_its_window_ends_alone(world: AmqpWorld) -> None:
    client = world.begun().begin(channel=1)
    client.send(transfer(0, handle=77, channel=1))
    assert client.expect(END).condition is not None
    assert world.connection().channels() == [0]


def test_many_sessions_hold_no_more_output_together_than_a_few(world: AmqpWorld) -> None:
    client = world.begun()
    control = world.connection()
    assert control.wire.session_output == SESSION_OUTPUT
    for channel in range(1, 100):
        client.begin(channel=channel)
    assert control.wire.session_output == CONNECTION_OUTPUT // 100
