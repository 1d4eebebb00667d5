"""A connection with TLS: records opened into Proton's buffer and sealed from it, a turn at a time."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Collector, Connection, Transport

from broker.amqp.control.handles import address_of
from broker.amqp.links.connection import ConnectionIO
from broker.amqp.links.secure import SecureConnection
from broker.security.devcerts import authority, leaf
from broker.security.tlsstream import TlsStream
from tests.wire.frames import AMQP_HEADER, BEGIN, OPEN, performative


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context, and a client's that trusts nobody in particular."""
    folder: Path = tmp_path_factory.mktemp("tls")
    certificate, key = leaf(authority(), "localhost", ["localhost"]).write(folder, "server")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    return server, client


class SecurePair:
    """A connection at one end of a socket pair, and a client's TLS at the other."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self.far, self.near = socket.socketpair()
        for end in (self.far, self.near):
            end.setblocking(False)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.incoming, self.outgoing)
        self.stream = TlsStream(self.near.fileno(), server, server_side=True)
        while not self.stream.complete:
            self._shake()
        self._shake()
        self.transport = Transport(mode=Transport.SERVER)
        self.connection = Connection()
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        pointers = address_of(self.transport._impl), address_of(self.collector._impl)
        to_flush: list[ConnectionIO] = []
        self.io = SecureConnection(
            self.stream, self.near.fileno(), *pointers, lambda kind, event: None, to_flush, []
        )
        self.io.owner = self
        self.closed: tuple[str, str] | None = None

    def _shake(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.client.do_handshake()
        self.flush()
        if not self.stream.complete:
            self.stream.shake()
        self.fetch()

    def flush(self) -> None:
        """Write the records of the client."""
        if self.outgoing.pending:
            self.far.sendall(self.outgoing.read())

    def fetch(self) -> int:
        """Read records for the client: how many bytes."""
        try:
            data = self.far.recv(1 << 20)
        except BlockingIOError:
            return 0
        self.incoming.write(data)
        return len(data)

    def send(self, *records: bytes) -> None:
        """Send each in a record of its own."""
        for record in records:
            self.client.write(record)
        self.flush()

    def heard(self) -> bytes:
        """Open all that has come to the client."""
        found = b""
        self.fetch()
        while True:
            try:
                found += self.client.read(1 << 16)
            except ssl.SSLWantReadError:
                return found

    def close(self, condition: str, text: str) -> None:
        self.closed = (condition, text)


@pytest.fixture
def pair(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[SecurePair]:
    made = SecurePair(*contexts)
    yield made
    made.far.close()
    made.near.close()


def test_frames_come_and_go_in_records(pair: SecurePair) -> None:
    pair.send(AMQP_HEADER, performative(OPEN, "peer"))
    assert pair.io.pump_in()
    assert pair.connection.remote_container == "peer"
    pair.connection.container = "us"
    pair.connection.open()
    assert pair.io.pump_out()
    heard = pair.heard()
    assert heard.startswith(AMQP_HEADER)
    assert b"us" in heard


def test_records_of_a_byte_each_are_one_stream(pair: SecurePair) -> None:
    sent = AMQP_HEADER + performative(OPEN, "peer")
    pair.send(*(sent[at : at + 1] for at in range(len(sent))))
    for _ in range(20):
        assert pair.io.pump_in()
    assert pair.connection.remote_container == "peer"


def test_records_beyond_a_turns_work_are_held_for_the_next(pair: SecurePair) -> None:
    pair.send(AMQP_HEADER, performative(OPEN, "peer"))
    pair.send(*(performative(BEGIN, None, 0, 9, 9, channel=channel) for channel in range(60)))
    held = []
    while len(pair.io.book.begun) < 60:
        assert pair.io.pump_in()
        held.append(pair.io.held)
        assert len(held) < 20
    assert any(held)
    # Epoll knows nothing of them: they are all in the stream.
    assert not pair.io.held


def test_a_broken_record_closes_the_connection(pair: SecurePair) -> None:
    pair.far.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert not pair.io.pump_in()
    assert pair.closed is not None
    assert pair.closed[0] == "amqp:connection:framing-error"
    assert pair.closed[1].startswith("TLS: ")


def test_a_full_socket_blocks_and_goes_on(pair: SecurePair) -> None:
    pair.send(AMQP_HEADER, performative(OPEN, "peer"))
    pair.io.pump_in()
    pair.connection.open()
    big = b"\x00\x53\x75\xb0" + (60_000).to_bytes(4, "big") + bytes(60_000)
    for _ in range(100):
        pair.io.send_performative(0, big)
        pair.io.pump_out()
    assert pair.io.blocked
    heard = len(pair.heard())
    while pair.io.blocked:
        assert pair.io.pump_out()
        heard += len(pair.heard())
    heard += len(pair.heard())
    assert heard > 100 * 60_000


def test_a_socket_that_is_gone_ends_both_directions(pair: SecurePair) -> None:
    pair.send(AMQP_HEADER, performative(OPEN, "peer"))
    pair.io.pump_in()
    pair.far.close()
    pair.connection.open()
    ends = [pair.io.pump_out() for _ in range(3)]
    assert not ends[-1]
    assert pair.io.closed()
