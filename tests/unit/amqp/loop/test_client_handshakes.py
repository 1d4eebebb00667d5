"""The way of a client to its connection: SASL or none, whole or byte by byte, refused with a word."""

from __future__ import annotations

import logging

import pytest

from broker.codec import sasl
from tests.unit.amqp.world import AmqpWorld
from tests.wire.frames import (
    AMQP_HEADER,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    SASL_OUTCOME,
    RawPeer,
    Symbol,
    performative,
)

INIT = performative(SASL_INIT, Symbol("ANONYMOUS"), kind=1)
GREETING = performative(OPEN, "raw", None, 65_536, 100)


def heard_open(client: RawPeer) -> None:
    assert client.read_bytes(8) == AMQP_HEADER
    client.expect(OPEN)


def test_a_client_may_come_without_sasl(world: AmqpWorld) -> None:
    client = world.client()
    client.send(AMQP_HEADER + GREETING)
    heard_open(client)
    assert world.connection().identity.mechanism == ""


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_bytes_behind_the_handshake_are_the_connections(world: AmqpWorld, size: int) -> None:
    client = world.client()
    said = SASL_HEADER + INIT + AMQP_HEADER + GREETING
    for at in range(0, len(said), size):
        client.send(said[at : at + size])
    assert client.read_bytes(8) == SASL_HEADER
    client.expect(SASL_OUTCOME)
    heard_open(client)
    assert world.connection().identity.mechanism == "ANONYMOUS"


def test_a_client_that_speaks_tls_is_told_so_in_the_log(
    world: AmqpWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = world.client()
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01")
    client.await_end()
    assert "the client speaks TLS, and this port is for amqp://" in caplog.text


def test_a_mechanism_that_is_not_offered_fails(world: AmqpWorld) -> None:
    client = world.client()
    client.send(sasl.SASL_HEADER + sasl.init("NONE", b""))
    assert client.read_bytes(8) == SASL_HEADER
    assert client.expect(SASL_OUTCOME).field(0) != 0
    client.await_end()
    assert not world.registry.peers


def test_a_client_that_hangs_up_in_its_handshake_is_gone(world: AmqpWorld) -> None:
    client = world.client()
    client.send(SASL_HEADER)
    client.close()
    world.until(lambda: not world.reactor.clients, "the end of the socket")
