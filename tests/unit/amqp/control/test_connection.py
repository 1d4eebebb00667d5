"""A connection from its open to its close: counted, refused, checked, ended alone by a bug of ours."""

from __future__ import annotations

import logging

import pytest

from broker.security.rules import parse_acl
from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import CLOSE, OPEN, performative


def test_the_answer_to_an_open_says_what_the_broker_can(world: AmqpWorld) -> None:
    client = world.client().open()
    [opened] = [frame for frame in client.log if frame.code == OPEN]
    assert opened.field(0) == world.container.name
    offered = [str(each) for each in opened.field(7).elements]  # type: ignore[attr-defined]
    assert offered == ["ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY"]
    assert opened.field(9)["product"] == "sluice"  # type: ignore[index]


def test_one_connection_too_many_is_closed_and_hears_no_more() -> None:
    world = AmqpWorld(limits={"max_connections_per_user": 1})
    try:
        world.client().open(container="first")
        client = world.client().open(container="second")
        assert client.expect(CLOSE).condition == "amqp:resource-limit-exceeded"
        assert world.container.quotas.refused["max_connections_per_user"] == 1
    finally:
        world.close()


def test_the_place_of_a_connection_is_free_once_its_client_closes() -> None:
    """Its client may open another at once, before the socket of this one is gone."""
    world = AmqpWorld(limits={"max_connections_per_user": 1})
    try:
        first = world.client().open(container="first")
        first.send(performative(CLOSE))
        second = world.client().open(container="second")
        second.begin()
        assert world.connection("second").is_open
    finally:
        world.close()


def test_a_user_who_may_not_connect_is_told_so_after_the_open() -> None:
    world = AmqpWorld(acl=parse_acl("rules: [{allow: connect, users: alice}]", "acl.yaml"))
    try:
        assert world.client().open().expect(CLOSE).condition == "amqp:unauthorized-access"
    finally:
        world.close()


def test_a_bug_ends_one_connection_and_no_other(
    world: AmqpWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = world.client().open(container="first"), world.client().open(container="second")
    control = world.connection("first")

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(type(control._sessions), "on_begin", broken)
    with pytest.raises(AssertionError):
        first.begin()
    monkeypatch.undo()
    assert [frame.condition for frame in first.log if frame.code == CLOSE] == ["amqp:internal-error"]
    second.begin()
    assert "closing after an internal error" in caplog.text


def test_the_reason_for_the_end_is_the_first_that_was_given(
    world: AmqpWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = world.begun("app")
    control = world.connection("app")
    control.close("amqp:connection:forced", "an operator closed this connection")
    client.send(performative(CLOSE))
    client.expect(CLOSE)
    client.close()
    world.until(lambda: "closed, from" in caplog.text, "the line")
    [line] = [each.getMessage() for each in caplog.records if "closed, from" in each.getMessage()]
    assert line.endswith("amqp:connection:forced: an operator closed this connection")


def test_nothing_is_left_of_a_client_that_goes_without_a_word(world: AmqpWorld) -> None:
    client = world.begun()
    client.attach_receiver("orders")
    client.close()
    world.until(lambda: not world.registry.peers, "the end of the connection")
    assert not world.engine.topology.nodes["orders"].consumers
    world.until(lambda: not world.reactor.clients, "the end of the socket")
