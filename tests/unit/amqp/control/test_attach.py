"""Attach and detach: what is granted, how a refusal looks, and that a detach is answered in kind."""

from __future__ import annotations

import pytest

from tests.unit.amqp.world import AmqpWorld, attach, detach
from tests.wire.frames import (
    ATTACH,
    DETACH,
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    Described,
    Symbol,
    UByte,
    performative,
)


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered_in_kind(world: AmqpWorld, closed: bool) -> None:
    client = world.begun()
    client.attach_sender("orders")
    answer = detach(client, 0, closed=closed)
    assert (answer.condition, bool(answer.field(1))) == (None, closed)
    assert not world.engine.topology.nodes["orders"].allocator.accounts


def test_a_refused_receiver_gets_a_null_source_and_then_the_error(world: AmqpWorld) -> None:
    client = world.begun()
    answer = attach(client, "in", 0, source=[], target=["mine"])
    source, target = answer.field(5), answer.field(6)
    assert source is None
    assert target.value[0] == "mine"  # type: ignore[attr-defined]
    assert client.expect(DETACH).condition == "amqp:not-found"


def test_a_refused_sender_gets_a_null_target(world: AmqpWorld) -> None:
    client = world.begun()
    answer = attach(client, "out", 0, source=["mine"], target=None, receives=False)
    assert answer.field(6) is None
    assert client.expect(DETACH).condition == "amqp:invalid-field"


def test_what_follows_a_refused_attach_does_no_harm(world: AmqpWorld) -> None:
    """A client may send transfers before it knows that its link is refused."""
    client = world.begun()
    attach(client, "out", 0, source=[], target=None, receives=False)
    client.expect(DETACH)
    client.attach_sender("orders", name="other", handle=1)
    assert client.await_credit(1) > 0


@pytest.mark.parametrize("limit", ["max_links", "max_connection_links"])
def test_one_link_too_many_is_refused_and_counted(limit: str) -> None:
    world = AmqpWorld(limits={limit: 2})
    try:
        client = world.begun()
        for number in range(2):
            client.attach_sender("orders", name=f"out{number}", handle=number)
        client.attach_sender("orders", name="more", handle=2)
        assert client.expect(DETACH).condition == "amqp:resource-limit-exceeded"
        assert world.container.quotas.refused[limit] == 1
    finally:
        world.close()


def test_a_selector_that_is_none_refuses_the_link(world: AmqpWorld) -> None:
    client = world.begun()
    filters = {Symbol("apache.org:selector-filter:string"): "a ="}
    source = ["orders", *[None] * 6, filters]
    attach(client, "in", 0, source=source, target=[])
    assert client.expect(DETACH).condition == "amqp:invalid-field"


def test_an_attach_is_answered_before_anything_is_sent(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_sender("orders")
    modes, termini = (UByte(2), UByte(0)), (Described(SOURCE, ["orders"]), Described(TARGET))
    client.send(performative(ATTACH, "in", 1, RECEIVER, *modes, *termini))
    answer = client.expect(ATTACH)
    assert (answer.field(0), answer.field(2)) == ("in", SENDER)
