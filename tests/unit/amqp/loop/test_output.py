"""Output of a turn: flushed, held back by a full socket, and dealt out fairly over a connection's links."""

from __future__ import annotations

import pytest

from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import FLOW, TRANSFER, RawPeer, performative, transfer

BODY = b"\x00\x53\x77\xb0\x00\x00\x80\x00" + b"x" * (1 << 15)
COUNT = 40


@pytest.fixture
def consumer(world: AmqpWorld) -> RawPeer:
    """A client that has sent itself more than its socket holds, and reads none of it."""
    client = world.begun()
    client.attach_sender("orders")
    client.await_credit()
    client.attach_receiver("orders")
    for number in range(COUNT):
        client.send(transfer(number, BODY, settled=True))
    client.send(performative(FLOW, 0, 10_000, COUNT, 10_000, 1, 0, 1000))
    return client


def test_a_full_socket_is_watched_until_it_takes_bytes_again(world: AmqpWorld, consumer: RawPeer) -> None:
    [socket] = world.reactor.clients.values()
    world.until(lambda: socket.armed, "a full socket")
    assert socket.taken_ns > 0
    assert [len(consumer.expect(TRANSFER).payload) for _ in range(COUNT)] == [len(BODY)] * COUNT
    world.until(lambda: not socket.armed, "an empty socket")


def test_a_bug_in_the_output_of_one_client_ends_it_alone(
    world: AmqpWorld, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = world.begun("first"), world.begun("second")
    [broken] = [each for each in world.reactor.clients.values() if each.peer is world.connection("first")]
    world.reactor._sockets.crash(broken, ZeroDivisionError())
    assert "closing after an internal error" in caplog.text
    assert world.connection("second").is_open
    first.await_end()
    second.attach_sender("orders")
    assert second.await_credit() > 0


def test_a_turn_that_fails_is_logged_and_the_next_goes_on(
    world: AmqpWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = world.begun()
    monkeypatch.setattr(world.reactor._output, "_take_turns", lambda: [][0])
    world.container.turns.append(world.connection().wire)
    world.reactor._output.dispatch()
    assert "a turn failed" in caplog.text
    monkeypatch.undo()
    world.container.turns.clear()
    client.attach_sender("orders")
    assert client.await_credit() > 0


def test_a_drain_is_asked_again_until_all_is_written(world: AmqpWorld) -> None:
    class Drained:
        """A consumer that has written everything when it is asked for the second time."""

        asked = 0

        def answer_drain(self) -> bool:
            self.asked += 1
            return self.asked == 2

    link = Drained()
    world.container.answers.append(link)  # type: ignore[arg-type]
    world.reactor._output.finish()
    assert len(world.container.answers) == 1
    world.reactor._output.finish()
    assert not world.container.answers
