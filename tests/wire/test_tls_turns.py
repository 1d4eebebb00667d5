"""What one TLS connection may take of a turn, and that nothing of it is forgotten: all in one process."""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.amqp.loop.sockets import ClientSocket
from broker.config.tls import Tls
from broker.security.exchange import ListenerTrust
from broker.security.tls import ServerTls
from tests.fuzz.targets.connection import World
from tests.wire.frames import RawPeer, transfer
from tests.wire.tlsworld import ByHand, Pki

pytestmark = [pytest.mark.wire, pytest.mark.timeout(120)]

EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"
MESSAGES = 100
PAYLOAD = b"\x00\x53\x77\xb0\x00\x00\x07\xd0" + b"x" * 2000
# What one read from the socket brings, and records that a turn handles before it asks for no more.
READ_BYTES, READS_PER_TURN = 1 << 15, 16
# How long the loop sleeps while somebody waits in the lane.
LANE_S = 0.001
# How long the kernel may take to carry bytes from one socket to another.
KERNEL_S = 10.0
AT_ONCE = READS_PER_TURN + READ_BYTES // len(PAYLOAD) + 1


class Secured:
    """A broker's loop that turns when it is told to, and one client of TLS that is open and has credit."""

    def __init__(self, pki: Pki) -> None:
        self.world = World()
        tls = ServerTls(Tls(certificate=pki.folder / "server.pem", key=pki.folder / "server-key.pem"))
        port = self.world.reactor.listen(
            "127.0.0.1", 0, False, ListenerTrust(loopback=True, secure=True), tls
        )
        self.peer = ByHand(port, pki.context())
        self.peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.raw = RawPeer(0, self.peer)
        self.meanwhile(self._attach)

    def _attach(self) -> None:
        self.peer.shake()
        self.raw.open().begin().attach_sender("queue")
        self.raw.await_credit()

    def meanwhile(self, client: Callable[[], None]) -> None:
        """The loop turns while a client's steps are done; then once more, until nothing is left to do."""
        faults: list[BaseException] = []

        def run() -> None:
            try:
                client()
            except BaseException as fault:  # noqa: BLE001 - raised again where it can be seen
                faults.append(fault)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            self.world.turn()
        thread.join()
        if faults:
            raise faults[0]
        while self.is_called():
            self.world.turn()

    @property
    def guest(self) -> ClientSocket:
        """The client as the loop knows it."""
        [found] = self.world.reactor.clients.values()
        return found

    @property
    def depth(self) -> int:
        """Messages that have arrived."""
        return sum(node.queue.ready for node in self.world.engine.topology.every_node())

    def is_called(self) -> bool:
        """Whether the loop has a reason to turn again, soon: a socket, or what it knows of itself.

        What the client's socket still holds comes when the kernel gets to it, on a busy machine late.
        """
        reactor = self.world.reactor
        if 0 <= reactor._timeout() <= LANE_S:
            return True
        deadline = time.monotonic() + KERNEL_S
        while not (found := reactor.epoll.poll(0.01)) and self._unheard() and time.monotonic() < deadline:
            pass
        return bool(found or reactor.epoll.poll(0))

    def _unheard(self) -> int:
        """Bytes of the client's that the broker's socket has not acknowledged yet."""
        return int.from_bytes(fcntl.ioctl(self.peer.socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def close(self) -> None:
        self.peer.close()
        self.world.close()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(Pki.at(tmp_path / "certs"))
    yield made
    made.close()


def seal(peer: ByHand, number: int) -> None:
    peer.tls.write(transfer(number, PAYLOAD, settled=True))


def test_a_turn_reads_so_many_records(secured: Secured) -> None:
    for number in range(MESSAGES):
        seal(secured.peer, number)
    secured.peer.flush()
    secured.world.reactor.turn()
    assert 0 < secured.depth <= AT_ONCE


def test_records_that_carry_nothing_do_not_prolong_a_turn(secured: Secured) -> None:
    """Behind each message a KeyUpdate: the last whole record of every read carries nothing."""
    for number in range(MESSAGES):
        seal(secured.peer, number)
        secured.peer.update_keys()
    secured.peer.flush()
    secured.world.reactor.turn()
    assert 0 < secured.depth <= AT_ONCE


@pytest.mark.parametrize("updates", [False, True])
def test_what_a_turn_leaves_is_called_for_again(secured: Secured, updates: bool) -> None:
    """Nothing more comes from the client, and its last message arrives all the same."""
    for number in range(MESSAGES):
        seal(secured.peer, number)
        if updates:
            secured.peer.update_keys()
    secured.peer.flush()
    while secured.depth < MESSAGES:
        assert secured.is_called(), f"{secured.depth} messages, and the loop sleeps"
        secured.world.reactor.turn()


def test_dust_is_paid_for(secured: Secured) -> None:
    """A record is work, however little it carries: the frames in it are not all that is billed."""
    dust = EMPTY_FRAME * 125
    for byte in dust:
        secured.peer.tls.write(bytes((byte,)))
    secured.peer.flush()
    secured.world.reactor.turn()
    assert secured.guest.cost.units >= len(dust)


def test_dust_is_read_to_its_end_and_the_rest_arrives(secured: Secured) -> None:
    for byte in EMPTY_FRAME * 2000:
        secured.peer.tls.write(bytes((byte,)))
    seal(secured.peer, 0)
    secured.meanwhile(secured.peer.flush)
    while secured.depth < 1:
        assert secured.is_called(), "the message is forgotten"
        secured.world.reactor.turn()
