"""Annotations of a `modified` outcome: the next consumer reads them, unless they are too many."""

from __future__ import annotations

import pytest

from broker.engine.annotations import MOST_ANNOTATIONS
from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import (
    DISPOSITION,
    MODIFIED,
    TRANSFER,
    Described,
    RawPeer,
    Symbol,
    performative,
    transfer,
)


def given_back(client: RawPeer, number: int, annotations: dict[Symbol, object]) -> bytes:
    """Give a message back with annotations; the message as it is sent again."""
    state = Described(MODIFIED, [True, False, annotations])
    client.send(performative(DISPOSITION, True, number, number, True, state))
    return client.expect(TRANSFER).payload


@pytest.fixture
def consumer(world: AmqpWorld) -> RawPeer:
    """A client that was sent a message and has credit for more."""
    client = world.begun()
    client.attach_sender("orders")
    client.send(transfer(0))
    client.attach_receiver("orders")
    client.give_credit(10)
    assert client.expect(TRANSFER).payload.endswith(b"hi")
    return client


def test_annotations_of_several_consumers_are_merged(consumer: RawPeer) -> None:
    assert b"first" in given_back(consumer, 0, {Symbol("x-opt-a"): "first"})
    last = given_back(consumer, 1, {Symbol("x-opt-a"): "second", Symbol("x-opt-b"): "other"})
    assert b"second" in last
    assert b"other" in last
    assert b"first" not in last


def test_more_annotations_than_are_kept_leave_the_message_as_it_was(consumer: RawPeer) -> None:
    """Each of them fits a frame, both of them don't fit what is kept."""
    half = "x" * (MOST_ANNOTATIONS * 2 // 3)
    given_back(consumer, 0, {Symbol("x-opt-a"): half})
    last = given_back(consumer, 1, {Symbol("x-opt-b"): half})
    assert b"x-opt-a" in last
    assert b"x-opt-b" not in last
