"""Handing of connections over to other cells, with their sockets, before their first link is attached.

All that the client has said goes along with all that it was answered. The other cell reads the one as if it
came from the socket, and drops the other from what it has to say: cells answer an open and a begin alike, to
the byte. Where they don't, the connection stays, as nothing has been said by the other cell.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from broker.amqp.container import Container
from broker.amqp.control.live import LiveConnection
from broker.amqp.loop.sockets import ClientSockets
from broker.security.exchange import ListenerTrust
from broker.security.identity import Identity
from broker.units import SECOND_NS

log = logging.getLogger("sluice.amqp")

# Of a connection that says more before its first attach nothing is kept, and it isn't handed over.
MOST_BYTES = 1 << 16
HEADER_BYTES = 8
# A frame without a body, which keeps a connection alive (AMQP 1.0 §2.4.5).
EMPTY_BYTES = 8
FORCED = "amqp:connection:forced"

# Whether the broker said it, and the bytes.
Step = tuple[bool, bytes]


@dataclass(frozen=True, slots=True)
class HandedConnection:
    """An authenticated client's socket, and all that was said on it, in order, from the AMQP header on.

    ``seconds``: how long the proof of who the client is holds; 0 for good. ``relays``: it is no client's
    socket but another cell's, by which that relays links of the client.
    """

    sock: socket.socket
    address: str
    door: ListenerTrust
    identity: Identity
    seconds: float = 0.0
    steps: tuple[Step, ...] = ()
    relays: bool = False


class HandoverOutcome(Enum):
    """The outcome of a hand-over."""

    # The other cell goes on with the connection.
    TAKEN = 1
    # It would answer otherwise than this one has, or has no room.
    REFUSED = 2
    # It doesn't answer, and the connection was taken back before it had it.
    UNANSWERED = 3
    # It had the connection and said no more: it may have written to it.
    UNKNOWN = 4


# Takes a connection to a cell, and calls back with the outcome.
HandOver = Callable[[int, HandedConnection, Callable[[HandoverOutcome], None]], None]


class Recorder:
    """The beginning of a connection, noted in a tap's place until its first link.

    ``over``: nothing is noted any more, as it is too long or another tap has the place.
    """

    def __init__(self, first: bytes) -> None:
        self.over = False
        self.steps: list[Step] = []
        self._nbytes = 0
        self.came(first)

    def came(self, data: bytes) -> None:
        """Note bytes that were read."""
        self._note(False, data)

    def went(self, data: bytes) -> None:
        """Note bytes that were written."""
        self._note(True, data)

    def finish(self, why: str) -> None:
        """Note no more: another tap takes its place, or the connection ends."""
        self.over = True

    def _note(self, is_ours: bool, data: bytes) -> None:
        self._nbytes += len(data)
        if self._nbytes > MOST_BYTES:
            self.over = True
            self.steps.clear()
        if not self.over:
            self.steps.append((is_ours, bytes(data)))


class ConnectionHandovers:
    """Hands connections over. ``send`` takes one to a cell, and calls back on the loop's thread."""

    def __init__(
        self, container: Container, sockets: ClientSockets, take: Callable[[HandedConnection], bool]
    ) -> None:
        self.send: HandOver | None = None
        self.handed_total = 0
        self.kept_total = 0
        self.lost_total = 0
        self._container = container
        self._sockets = sockets
        self._take = take

    def begin(self, peer: LiveConnection, cell: int) -> bool:
        """Hand a connection over once its input has been handled; whether that may be.

        No more of its links may be attached here, and nothing is written to it any more.
        """
        recorder = peer.wire.tap
        if not isinstance(recorder, Recorder) or recorder.over or self.send is None:
            return False
        self._container.inbox.post(lambda: self._go(peer, cell, recorder))
        return True

    def settle(self, peer: LiveConnection) -> None:
        """Let a connection stay here."""
        if isinstance(peer.wire.tap, Recorder):
            peer.wire.tap = None

    def _go(self, peer: LiveConnection, cell: int, recorder: Recorder) -> None:
        client = self._sockets.by_fd.get(peer.wire.fd)
        if client is None or client.peer is not peer or self.send is None:
            return
        left_ns = client.until_ns - time.monotonic_ns()
        handed = HandedConnection(
            client.sock.dup(),
            client.address,
            peer.door,
            peer.identity,
            max(left_ns / SECOND_NS, 0.001) if client.until_ns else 0.0,
            tuple(recorder.steps),
        )
        handed.sock.setblocking(False)
        client.peer.lose("", f"it goes on in cell {cell}")
        self._sockets.close(client)
        self.send(cell, handed, lambda outcome: self._sent(handed, cell, outcome))

    def _sent(self, handed: HandedConnection, cell: int, outcome: HandoverOutcome) -> None:
        if outcome is HandoverOutcome.TAKEN:
            self.handed_total += 1
            handed.sock.close()
        elif outcome is HandoverOutcome.REFUSED:
            self.kept_total += 1
            self._take(handed)
        else:
            self.lost_total += 1
            log.warning("%s: cell %d doesn't answer, and its connection is closed", handed.address, cell)
            if outcome is HandoverOutcome.UNANSWERED and self._take(handed):
                self._say_unanswered(handed, cell)
                return
            # Whether it has been written to is not known: its client sees an end, and comes back. The other
            # cell may have a descriptor of it too.
            with suppress(OSError):
                handed.sock.shutdown(socket.SHUT_RDWR)
            handed.sock.close()

    def _say_unanswered(self, handed: HandedConnection, cell: int) -> None:
        """Close a connection that was taken back, with the reason, so that its client comes back."""
        client = self._sockets.by_fd.get(handed.sock.fileno())
        if client is not None and client.peer is not None:
            text = f"cell {cell}, which has the node of this connection's first link, doesn't answer"
            client.peer.send_back(FORCED, text)


def without_empty_frames(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Leave out the empty frames that the broker said: another cell has other times for them.

    The broker's part begins with the protocol header; frames may be spread over several steps.
    """
    kept: list[Step] = []
    # Bytes of the header, or of the frame that is being read, which stay; and what is read of the next size.
    staying, begun = HEADER_BYTES, b""
    for is_ours, data in steps:
        if not is_ours:
            kept.append((is_ours, data))
            continue
        said, at = b"", 0
        while at < len(data):
            if staying:
                taken = min(staying, len(data) - at)
                said += data[at : at + taken]
                staying -= taken
                at += taken
                continue
            taken = min(EMPTY_BYTES - len(begun), len(data) - at)
            begun += data[at : at + taken]
            at += taken
            if len(begun) == EMPTY_BYTES:
                size = int.from_bytes(begun[:4], "big")
                if size > EMPTY_BYTES:
                    said += begun
                    staying = size - EMPTY_BYTES
                begun = b""
        if said:
            kept.append((is_ours, said))
    if begun:
        # Cut off within a frame's head: nobody knows yet whether it is an empty one.
        kept.append((True, begun))
    return tuple(kept)
