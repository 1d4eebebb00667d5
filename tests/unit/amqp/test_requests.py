"""Requests to the management node: answered where they may be, while their answers are read."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from proton import Message

from broker.amqp.requests import UNREAD_BYTES
from tests.unit.amqp.world import AmqpWorld, attach
from tests.wire.frames import DISPOSITION, FLOW, OPEN, REJECTED, TRANSFER, RawPeer, performative, transfer


def request(operation: str = "GET-TYPES", reply_to: str = "me", **properties: str) -> bytes:
    message = Message(properties={"operation": operation, "type": "org.amqp.management", **properties})
    message.reply_to = reply_to
    message.correlation_id = "7"
    return bytes(message.encode())


def asking(world: AmqpWorld) -> RawPeer:
    """A client with a link to the management node and one for its answers."""
    client = world.begun("asking")
    client.attach_sender("$management")
    client.await_credit()
    attach(client, "replies", 1, source=["$management"], target=["me"])
    client.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, 0, 100))
    return client


def test_an_answer_comes_by_the_name_that_the_client_gave(world: AmqpWorld) -> None:
    client = asking(world)
    client.send(transfer(0, request()))
    answer: Any = Message()
    answer.decode(client.expect(TRANSFER).payload)
    assert answer.properties["statusCode"] == 200
    assert answer.correlation_id == "7"


def test_an_answer_without_a_place_is_dropped_with_a_line(
    world: AmqpWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = asking(world)
    client.send(transfer(0, request(reply_to="nowhere")), transfer(1, request(reply_to="me")))
    client.expect(TRANSFER)
    assert "no node 'nowhere'" in caplog.text
    assert "nowhere" not in world.engine.topology.nodes


def test_an_answer_goes_where_the_virtual_host_of_the_client_has_that_address() -> None:
    world = AmqpWorld(hosts=["shop"])
    try:
        for name in ("answers", "shop/answers"):
            world.model.nodes.create("queue", name, {})
        client = world.client().authenticate()
        client.send(performative(OPEN, "till", "shop", 65_536, 100))
        client.read_bytes(8)
        client.expect(OPEN)
        client.begin().attach_sender("$management")
        client.await_credit()
        for number, reply_to in enumerate(("answers", "/answers", "queue://answers")):
            client.send(transfer(number, request(reply_to=reply_to)))
            client.expect(DISPOSITION)
        nodes = world.engine.topology.nodes
        assert (nodes["answers"].received, nodes["shop/answers"].received) == (0, 3)
        outside = world.begun("outside")
        outside.attach_sender("$management")
        outside.await_credit()
        outside.send(transfer(0, request(reply_to="shop/answers")))
        outside.expect(DISPOSITION)
        assert nodes["shop/answers"].received == 3
    finally:
        world.close()


def test_what_is_no_request_is_ignored_with_a_line(
    world: AmqpWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = asking(world)
    client.send(transfer(0, request(reply_to="")), transfer(1, request()))
    client.expect(TRANSFER)
    assert "without a usable reply-to" in caplog.text


def test_answers_that_nobody_reads_are_dropped_at_the_limit(world: AmqpWorld) -> None:
    client = asking(world)
    control = world.connection("asking")
    node = control.replies["me"]
    control.detach(next(iter(node.consumers)), "amqp:internal-error", "nobody reads")  # type: ignore[arg-type]
    assert not control.replies, "they go with the link"
    attach(client, "more", 2, source=["$management"], target=["other"])
    place = control.replies["other"]
    size, count = 1 << 20, 0
    while place.gate.depth_bytes <= UNREAD_BYTES and count < 100:
        world.engine.intake.put_behind(place, b"\x00\x53\x77\xb0" + size.to_bytes(4, "big") + b"x" * size)
        count += 1
    before = place.queue.ready
    world.container.requests._reply(control, "other", b"answer")
    assert place.queue.ready == before


def test_a_request_waits_only_where_there_is_room_for_it() -> None:
    world = AmqpWorld(limits={"max_waiting_requests": 2})
    try:
        world.begun("asking")
        control = world.connection("asking")
        taken = [world.container.requests.manage(control, request(), lambda: None) for _ in range(3)]
        assert taken == [True, True, False]
        assert world.container.quotas.refused["max_waiting_requests"] == 1
    finally:
        world.close()


def test_the_request_of_a_connection_that_is_gone_is_not_carried_out(world: AmqpWorld) -> None:
    client = world.begun("asking")
    control = world.connection("asking")
    told: list[str] = []
    world.container.requests.manage(control, request(), lambda: told.append("answered"))
    world.registry.peers.discard(control)
    world.container.requests.answer_oldest()
    assert told == []
    client.close()


def test_the_request_of_a_connection_that_was_closed_is_not_carried_out(world: AmqpWorld) -> None:
    """Its user may be deleted, and its socket is there as long as it is told so."""
    world.begun("asking")
    control = world.connection("asking")
    told: list[str] = []
    world.container.requests.manage(control, request(), lambda: told.append("answered"))
    control.close("amqp:unauthorized-access", "no user any more")
    assert control in world.registry.peers
    world.container.requests.answer_oldest()
    assert told == []


def test_a_request_that_is_too_long_is_rejected() -> None:
    world = AmqpWorld(limits={"max_request_size": 4096})
    try:
        client = asking(world)
        client.send(transfer(0, request(name="x" * 5000)))
        frame = client.expect(DISPOSITION)
        assert int(frame.field(4).descriptor) == REJECTED  # type: ignore[attr-defined]
    finally:
        world.close()
