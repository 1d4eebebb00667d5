"""The threads by which a cell and its neighbours hand connections to each other, over Unix sockets.

One thread hears the others, a few speak to each of them. None of them touches the engine: what comes is
posted to the loop, and so is what an answer was.
"""

from __future__ import annotations

import hmac
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from broker.amqp.control.live import LiveConnection
from broker.amqp.loop.handover import HandedConnection, HandoverOutcome
from broker.amqp.loop.reactor import Reactor
from broker.server.cells import messages
from broker.server.cells.messages import MessageError
from broker.server.cells.place import CellPlace
from broker.server.cells.sockets import connected
from broker.server.cluster.header import digest_of

log = logging.getLogger("sluice.cells")

# How long a cell may take to say what it wants.
HEAR_S = 2.0
# How long a connection waits to be taken over, for a speaker as for the answer: a cell under restart
# answers once it serves again.
ANSWER_S = 10.0
AGAIN_S = 0.1
# Threads that speak to one cell: its loop answers each between two turns. Connections that a silent cell
# keeps waiting end in the order in which they came, so that those behind them wait for their own time only.
SPEAKERS = 4
# Threads that hear what other machines' cells say first.
HEARERS = 4
ACCEPTS = 16
PAUSE_S = 0.1
STOP_S = 2.0

Told = Callable[[HandoverOutcome], None]


class NeighbourPort:
    """Hears the other cells at a socket that listens, from ``start`` to ``stop``."""

    def __init__(self, sock: socket.socket, reactor: Reactor) -> None:
        self._sock = sock
        self._reactor = reactor
        # Takes sockets on which other cells ask over HTTP; any thread may call it.
        self.on_http: Callable[[socket.socket], None] = socket.socket.close
        # Given the socket and the fields of a queue that another cell sends, on a thread of its own.
        self.on_move: Callable[[socket.socket, dict[str, object]], None] | None = None
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Connections from other machines, which are heard on threads of their own: those may be frozen.
        self._adopted: SimpleQueue[Callable[[], None]] | None = None
        self._thread = threading.Thread(target=self._run, name="neighbours", daemon=True)

    def start(self) -> None:
        """Begin to hear."""
        self._thread.start()

    def adopt(self, sock: socket.socket, digest: str) -> None:
        """Hear another machine's cell, which another member of the cluster vouches for; on one thread.

        Its first message must have that digest, which the member has signed.
        """
        if self._adopted is None:
            self._adopted = SimpleQueue()
            for number in range(HEARERS):
                name = f"neighbours-{number}"
                threading.Thread(target=_work, args=(self._adopted,), name=name, daemon=True).start()
        self._adopted.put(lambda: self._hear(sock, digest))

    def stop(self) -> None:
        """Hear nobody any more; others wait at the socket, which another process may have."""
        os.eventfd_write(self._bell, 1)
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        self._sock.close()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._bell, select.POLLIN)
        while True:
            if any(fd == self._bell for fd, _ in poll.poll()):
                return
            try:
                for _ in range(ACCEPTS):
                    sock, _ = self._sock.accept()
                    self._hear(sock)
            except BlockingIOError:
                continue
            except OSError as fault:
                log.warning("other cells can't be heard: %s", fault.strerror)
                time.sleep(PAUSE_S)

    def _hear(self, sock: socket.socket, digest: str | None = None) -> None:
        """Read what a cell wants, which it says at once, and do it.

        ``digest`` is that of its message where another member has signed it.
        """
        handed: list[int] = []
        try:
            sock.settimeout(HEAR_S)
            message = _received(sock, handed)
            if digest is not None and not hmac.compare_digest(digest_of(message), digest):
                raise MessageError("what it says isn't what its member has signed")
            fields, data = messages.read(message)
            if fields["kind"] == messages.CONNECTION:
                self._on_connection(sock, fields, data, handed)
            elif fields["kind"] == messages.LINKS:
                self._on_links(sock, fields)
            elif fields["kind"] == messages.HTTP:
                self.on_http(sock)
            elif fields["kind"] == messages.MOVE and self.on_move is not None:
                name = f"arrive-{fields.get('name')}"[:15]
                threading.Thread(target=self.on_move, args=(sock, fields), name=name, daemon=True).start()
            else:
                raise MessageError(f"another cell wants '{fields['kind']}', which this one doesn't know")
        except (MessageError, OSError) as fault:
            log.warning("another cell wasn't understood: %s", fault)
            sock.close()
        finally:
            for fd in handed:
                os.close(fd)

    def _on_connection(
        self, sock: socket.socket, fields: dict[str, object], data: bytes, handed: list[int]
    ) -> None:
        if len(handed) != 2:
            raise MessageError("a connection without its socket and its ticket")
        address, door, identity, seconds = messages.client_of(fields)
        steps = messages.steps_of(fields, data)
        ticket, client = HandoverTicket(handed.pop()), socket.socket(fileno=handed.pop())
        connection = HandedConnection(client, address, door, identity, seconds, steps)
        self._reactor.post(lambda: self._take(sock, connection, ticket))

    def _on_links(self, sock: socket.socket, fields: dict[str, object]) -> None:
        address, door, identity, seconds = messages.client_of(fields)
        connection = HandedConnection(sock, address, door, identity, seconds, relays=True)

        def take() -> None:
            if not self._reactor.take_over(connection):
                sock.close()

        self._reactor.post(take)

    def _take(self, sock: socket.socket, connection: HandedConnection, ticket: HandoverTicket) -> None:
        """Take a connection over, on the loop's thread, unless the other cell has taken it back."""
        with sock, ticket:
            sock.setblocking(False)
            if not ticket.redeem():
                connection.sock.close()
                return
            taken = self._reactor.take_over(connection)
            if not taken:
                connection.sock.close()
            with suppress(OSError):
                sock.send(messages.TAKEN if taken else messages.REFUSED)


class Neighbours:
    """Speaks to the other cells, each on threads of its own, until ``stop``."""

    def __init__(self, place: CellPlace, reactor: Reactor) -> None:
        self._place = place
        self._reactor = reactor
        self._waiting: dict[int, SimpleQueue[Callable[[], None]]] = {}
        self._is_stopped = False

    def hand_over(self, cell: int, connection: HandedConnection, told: Told) -> None:
        """Hand a connection to a cell; ``told`` hears the outcome on the loop's thread, at most ``ANSWER_S``
        later.
        """
        until_s = time.monotonic() + ANSWER_S

        def speak() -> None:
            outcome = HandoverOutcome.UNKNOWN if self._is_stopped else self._spoken(cell, connection, until_s)
            self._reactor.post(lambda: told(outcome))

        self._queue_of(cell).put(speak)

    def dial(self, owner: LiveConnection, cell: int) -> socket.socket | None:
        """Connect to a cell for links of a client; None where it can't be reached. On the loop's thread.

        The supervisor listens for it: a cell that is being restarted answers once it serves again.
        """
        client = messages.client_fields(owner.address, owner.door, owner.identity, 0.0)
        try:
            # Waits for nothing: there is room for it or there isn't.
            sock = connected(self._place.socket_of(cell), 0.0)
        except OSError as fault:
            log.warning("cell %d can't be reached: %s", cell, fault)
            return None
        try:
            sock.sendall(messages.written(messages.LINKS, client))
        except OSError as fault:
            log.warning("cell %d can't be spoken to: %s", cell, fault)
            sock.close()
            return None
        return sock

    def stop(self) -> None:
        """Speak no more; what waits is told that nobody answered."""
        self._is_stopped = True

    def _queue_of(self, cell: int) -> SimpleQueue[Callable[[], None]]:
        queue = self._waiting.get(cell)
        if queue is None:
            queue = self._waiting[cell] = SimpleQueue()
            for number in range(SPEAKERS):
                name = f"to-cell-{cell}-{number}"
                threading.Thread(target=_work, args=(queue,), name=name, daemon=True).start()
        return queue

    def _spoken(self, cell: int, connection: HandedConnection, until_s: float) -> HandoverOutcome:
        """Speak to a cell until it has answered, again where it ends before it has the connection."""
        client = messages.client_fields(
            connection.address, connection.door, connection.identity, connection.seconds
        )
        steps, data = messages.step_fields(connection.steps)
        message = messages.written(messages.CONNECTION, {**client, **steps}, data)
        while time.monotonic() < until_s and not self._is_stopped:
            with HandoverTicket() as ticket:
                descriptors = [connection.sock.fileno(), ticket.fd]
                try:
                    answer = _answer(self._place.socket_of(cell), message, descriptors, until_s)
                except OSError as fault:
                    log.warning("cell %d can't be spoken to: %s", cell, fault)
                    answer = b""
                if answer == messages.TAKEN:
                    return HandoverOutcome.TAKEN
                if answer == messages.REFUSED:
                    return HandoverOutcome.REFUSED
                if not ticket.redeem():
                    return HandoverOutcome.UNKNOWN
            time.sleep(max(min(AGAIN_S, until_s - time.monotonic()), 0.0))
        return HandoverOutcome.UNANSWERED


class HandoverTicket:
    """A token that goes along with a connection: of two cells one redeems it, and has the connection then.

    ``fd``: an eventfd that holds 1, made anew unless one is given.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if fd is None else fd

    def __enter__(self) -> HandoverTicket:
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self.fd)

    def redeem(self) -> bool:
        """Return whether it was there to be redeemed; it isn't for anybody any more."""
        try:
            return os.eventfd_read(self.fd) == 1
        except BlockingIOError:
            return False


def _answer(path: Path, message: bytes, descriptors: list[int], until_s: float) -> bytes:
    """Send a cell a message with descriptors; return its answer, b"" if it ends first. Raises OSError."""

    def left_s() -> float:
        return max(until_s - time.monotonic(), 0.001)

    with connected(path, left_s()) as sock:
        sock.settimeout(left_s())
        sent = socket.send_fds(sock, [message], descriptors)
        if sent < len(message):
            sock.sendall(message[sent:])
        sock.settimeout(left_s())
        return sock.recv(1)


def _work(queue: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        try:
            queue.get()()
        except Exception:
            log.exception("what is said to another cell has failed")


def _received(sock: socket.socket, handed: list[int]) -> bytes:
    """Read a message and not a byte more; the descriptors that came with it are added to ``handed``."""
    received = b""
    while missing := messages.missing_bytes(received):
        data, fds, _, _ = socket.recv_fds(sock, missing, 2)
        handed += fds
        if not data:
            raise MessageError("it ended before its message did")
        received += data
    return received
