"""Bytes between a socket and Proton: read in turns, written until the socket is full, shown to a tap."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from proton import Collector, Connection, Transport

from broker.amqp.control.handles import address_of
from broker.amqp.links.connection import ConnectionIO
from tests.wire.frames import AMQP_HEADER, BEGIN, OPEN, frame, performative


class Tap:
    def __init__(self) -> None:
        self.read = b""
        self.written = b""

    def came(self, data: bytes) -> None:
        self.read += data

    def went(self, data: bytes) -> None:
        self.written += data


class Pair:
    """A connection at one end of a socket pair."""

    def __init__(self) -> None:
        self.far, self.near = socket.socketpair()
        for end in (self.far, self.near):
            end.setblocking(False)
        self.transport = Transport(mode=Transport.SERVER)
        self.connection = Connection()
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        pointers = address_of(self.transport._impl), address_of(self.collector._impl)
        self.to_flush: list[ConnectionIO] = []
        self.io = ConnectionIO(self.near.fileno(), *pointers, lambda kind, event: None, self.to_flush, [])
        self.io.owner = self
        self.io.tap = self.tap = Tap()  # type: ignore[assignment]

    def close(self, *_: str) -> None:
        self.far.close()
        self.near.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_bytes_reach_proton_and_its_own_the_socket(pair: Pair) -> None:
    sent = AMQP_HEADER + performative(OPEN, "peer")
    pair.far.send(sent)
    assert pair.io.pump_in()
    assert pair.connection.remote_container == "peer"
    assert pair.to_flush == [pair.io]
    pair.connection.container = "us"
    pair.connection.open()
    assert pair.io.pump_out()
    written = pair.far.recv(4096)
    assert written.startswith(AMQP_HEADER)
    assert (pair.tap.read, pair.tap.written) == (sent, written)
    assert not pair.io.has_output()


def test_a_connection_is_in_the_list_of_those_to_write_once(pair: Pair) -> None:
    pair.io.mark()
    pair.io.mark()
    assert pair.to_flush == [pair.io]
    pair.io.pump_out()
    pair.io.mark()
    assert pair.to_flush == [pair.io] * 2


def test_no_more_comes_behind_the_end(pair: Pair) -> None:
    pair.far.send(AMQP_HEADER)
    assert pair.io.pump_in()
    assert pair.io.pump_in()
    pair.far.shutdown(socket.SHUT_WR)
    assert not pair.io.pump_in()


def test_a_full_socket_blocks_and_goes_on(pair: Pair) -> None:
    pair.far.send(AMQP_HEADER + performative(OPEN, "peer"))
    pair.io.pump_in()
    pair.connection.open()
    big = b"\x00\x53\x75\xb0" + (60_000).to_bytes(4, "big") + bytes(60_000)
    for _ in range(100):
        pair.io.send_performative(0, big)
        pair.io.pump_out()
    assert pair.io.blocked
    assert pair.io.has_output()
    heard = 0
    while pair.io.has_output():
        heard += len(pair.far.recv(1 << 20))
        assert pair.io.pump_out()
    assert not pair.io.blocked
    assert heard > 100 * 60_000 - (1 << 20)


def test_a_socket_that_is_gone_ends_both_directions(pair: Pair) -> None:
    pair.far.send(AMQP_HEADER + performative(OPEN, "peer"))
    pair.io.pump_in()
    pair.far.close()
    pair.connection.open()
    assert not pair.io.pump_out()
    assert pair.io.closed()


def test_a_turn_handles_so_many_frames_that_cost(pair: Pair) -> None:
    pair.far.send(AMQP_HEADER + performative(OPEN, "peer"))
    pair.far.send(b"".join(performative(BEGIN, None, 0, 9, 9, channel=channel) for channel in range(60)))
    turns, unusual = 0, list[bool]()
    while len(pair.io.book.begun) < 60:
        assert pair.io.pump_in()
        unusual.append(pair.io.unusual)
        turns += 1
        assert turns < 10
    assert turns > 1
    assert unusual[0]


def test_a_frame_larger_than_protons_room_is_read_aside(pair: Pair) -> None:
    pair.transport.max_frame_size = 512
    pair.far.send(AMQP_HEADER + performative(OPEN, "peer", None, 60_000))
    pair.far.send(performative(BEGIN, None, 0, 9, 9, 9, None, None, {"k": "v" * 30_000}))
    for _ in range(10):
        pair.io.pump_in()
    assert pair.io.book.begun == [0]


def test_idle_timeouts_are_protons(pair: Pair) -> None:
    pair.transport.idle_timeout = 2.0
    pair.far.send(AMQP_HEADER + performative(OPEN, "peer"))
    pair.io.pump_in()
    pair.connection.open()
    pair.io.pump_out()
    first = pair.io.tick(1000)
    assert first > 1000
    pair.far.send(frame(b""))
    pair.io.pump_in()
    assert pair.io.tick(first - 1) >= first
    pair.io.abort()
    assert pair.to_flush
