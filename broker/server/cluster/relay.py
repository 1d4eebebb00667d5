"""A standby's ports: each client's bytes go to the owner, and the owner's to the client, as they are.

One thread, epoll, plain sockets. A direction holds at most one read that its other side hasn't taken, and is
not read meanwhile. While the owner isn't known or doesn't answer, clients are held unread for a bounded time.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol

from broker.cluster.names import addresses_of, connected, is_address
from broker.errors import OperatorError
from broker.loggers import SOMEBODY, about
from broker.server.cluster import header
from broker.server.cluster.header import RelayedClient
from broker.server.cluster.listening import PAUSE_NS, listening_socket
from broker.server.cluster.pages import Answered, asked_path, written_answer

log = logging.getLogger("sluice.cluster")

READ_BYTES = 256 * 1024
ACCEPTS = 32
# How long a client is held for an owner, and how many are.
HOLD_NS = 5_000_000_000
MOST_HELD = 2048
MOST_CLIENTS = 60_000
# An owner that doesn't answer is asked again so soon.
RETRY_NS = 200_000_000
# Of a request to the port for HTTP, until its first line is there.
LARGEST_LINE = 8192
TICK_NS = 100_000_000
# An owner that can't be reached is looked for so often, clients or none.
LOOK_NS = 1_000_000_000
# How long the look-up of an owner's name is waited for before it begins again.
NAME_S = 60.0
# How long ``stop`` waits for the thread.
END_S = 5.0

# Find a page of the standby's own by its path; None: it has no such page.
Page = Callable[[str], Answered | None]


@dataclass(frozen=True, slots=True)
class OwnerAddress:
    """Where the owner's member port is. Another ``epoch`` is another owner, at the same address too."""

    member: str
    host: str
    port: int
    epoch: int


def takes_connections(owner: OwnerAddress, timeout_s: float) -> bool:
    """Return whether the owner's port takes a connection; that of a stopped process does, too."""
    try:
        connected(owner.host, owner.port, timeout_s).close()
    except OSError:
        return False
    return True


class FirstMessage(Protocol):
    """The message that connections at a listener begin with, where they begin with one."""

    def missing_bytes(self, data: bytes) -> int:
        """Return how many bytes it lacks, or until more can be said; ValueError if it can't become one."""
        ...

    def answer(self, message: bytes) -> bytes:
        """Return what it is answered with here, empty where it goes to the owner."""
        ...


@dataclass(frozen=True, slots=True)
class RelayListener:
    """A client listener. ``url`` is its setting; ``pages``: those that are answered here, by their path;
    ``message``: that which a connection begins with, whose digest goes along.

    ``sock`` listens already, in place of the address. Other processes may listen at it, too: those that come
    are left to them for ``late_ns``.
    """

    url: str
    host: str
    port: int
    pages: Page | None = None
    message: FirstMessage | None = None
    sock: socket.socket | None = None
    late_ns: int = 0


class _State(Enum):
    READING = auto()  # the first line of a request, or the first message
    HELD = auto()
    CONNECTING = auto()
    AWAITING = auto()  # the owner's answer
    RELAYING = auto()
    ANSWERING = auto()  # a page of our own
    CLOSED = auto()


class _Side:
    """One socket of a relayed connection; ``pending`` waits to be written to it."""

    __slots__ = ("ended", "fd", "mask", "pending", "relayed", "shut", "sock")

    def __init__(self, relayed: _Relayed, sock: socket.socket) -> None:
        self.relayed = relayed
        self.sock = sock
        self.fd = sock.fileno()
        self.pending: memoryview | None = None
        # Nothing more comes from it; nothing more goes to it.
        self.ended = False
        self.shut = False
        self.mask = 0


class _Relayed:
    __slots__ = (
        "client",
        "deadline_ns",
        "first",
        "heard",
        "is_signed_again",
        "listener",
        "nonce",
        "owner",
        "shown",
        "state",
        "upstream",
    )

    def __init__(self, sock: socket.socket, listener: RelayListener, shown: RelayedClient) -> None:
        self.client = _Side(self, sock)
        self.upstream: _Side | None = None
        self.listener = listener
        self.shown = shown
        self.state = _State.HELD
        self.owner: OwnerAddress | None = None
        self.deadline_ns = 0
        # What was read of the client to see where it goes, and what the owner has answered so far.
        self.first = b""
        self.heard = b""
        # Of its header; and whether that was signed anew by the owner's clock.
        self.nonce = b""
        self.is_signed_again = False


@dataclass(slots=True)
class RelayCounts:
    """What the relay has counted since its start."""

    accepted_total: int = 0
    relayed_total: int = 0
    turned_away_total: int = 0
    refused_total: int = 0


class Relay:
    """Listens on the client listeners and relays to the owner, in a thread from ``start`` to ``stop``.

    ``set_owner`` may be called on any thread.
    """

    def __init__(
        self,
        cell: str,
        member: str,
        secret: bytes,
        listeners: Sequence[RelayListener],
        hold_ns: int = HOLD_NS,
    ) -> None:
        self.counts = RelayCounts()
        self.ports: list[int] = []
        self._cell = cell
        self._member = member
        self._secret = secret
        self._listeners = listeners
        self._hold_ns = hold_ns
        self._owner: OwnerAddress | None = None
        # Where that one was found last, None while its name is looked up for the first time; the name that is
        # looked up now.
        self._found_at: tuple[str, int] | None = None
        self._looked_up: OwnerAddress | None = None
        # By how much the owner's clock is ahead of this one's, as far as that was said.
        self._ahead_ms = 0
        self._retry_ns = 0
        self._reachable = False
        self._look_ns = 0
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._listening: dict[int, tuple[socket.socket, RelayListener]] = {}
        # Those at which nobody is accepted for a moment, and until when.
        self._paused: dict[int, int] = {}
        # Those at which somebody has come who is left to others, and until when.
        self._late: dict[int, int] = {}
        self._sides: dict[int, _Side] = {}
        self._all: set[_Relayed] = set()
        self._held: set[_Relayed] = set()
        # Those with a deadline: held, connecting, or whose request isn't read.
        self._young: set[_Relayed] = set()
        self._buffer = bytearray(READ_BYTES)
        self._inbox: deque[Callable[[], None]] = deque()
        self._running = True
        self._thread: threading.Thread | None = None

    # --- for other threads

    @property
    def is_reachable(self) -> bool:
        """Whether an owner is known that answered when it was last asked."""
        return self._owner is not None and self._reachable

    @property
    def open_count(self) -> int:
        """The number of clients that are relayed or held."""
        return len(self._all)

    @property
    def held_count(self) -> int:
        """The number of clients that wait for an owner."""
        return len(self._held)

    def start(self) -> list[int]:
        """Open the ports, and return them. OperatorError if one can't be had."""
        try:
            for listener in self._listeners:
                sock = listener.sock or listening_socket(listener.host, listener.port)
                self._listening[sock.fileno()] = sock, listener
                self._epoll.register(sock.fileno(), select.EPOLLIN)
                if sock.family != socket.AF_UNIX:
                    self.ports.append(sock.getsockname()[1])
        except OperatorError:
            self._close_all()
            raise
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()
        return self.ports

    def set_owner(self, owner: OwnerAddress | None) -> None:
        """Relay to this owner from now on; connections to another one are closed. None: it isn't known."""
        self._post(lambda: self._change(owner))

    def stop(self) -> None:
        """Close the ports and all connections, and end the thread."""
        if self._thread is not None and self._running:
            self._post(self._end)
            self._thread.join(END_S)
            # The next owner of the ports is this process: they are free now, whatever holds the thread up.
            for sock, _ in list(self._listening.values()):
                sock.close()

    def _post(self, function: Callable[[], None]) -> None:
        self._inbox.append(function)
        with suppress(OSError):  # it has ended
            os.eventfd_write(self._bell, 1)

    # --- the thread

    def _run(self) -> None:
        try:
            while self._running:
                self._turn()
        except Exception:
            log.exception("the relay has failed")
        finally:
            self._close_all()

    def _end(self) -> None:
        self._running = False

    def _close_all(self) -> None:
        for each in list(self._all):
            self._close(each)
        for sock, _ in self._listening.values():
            sock.close()
        self._listening.clear()
        self._epoll.close()
        os.close(self._bell)

    def _turn(self) -> None:
        is_lost = self._owner is not None and not self._reachable
        timeout_s = TICK_NS / 1e9 if self._young or is_lost or self._paused else -1
        if self._late:
            timeout_s = max(min(self._late.values()) - time.monotonic_ns(), 0) / 1e9
        for fd, mask in self._epoll.poll(timeout_s):
            side = self._sides.get(fd)
            if side is not None:
                self._on_ready(side, mask)
            elif fd == self._bell:
                os.eventfd_read(self._bell)
                while self._inbox:
                    self._inbox.popleft()()
            elif fd in self._listening:
                self._come(*self._listening[fd])
        if self._late:
            self._accept_late(time.monotonic_ns())
        if self._paused:
            self._resume(time.monotonic_ns())
        if self._young:
            self._look(time.monotonic_ns())
        if is_lost:
            self._look_for_owner(time.monotonic_ns())

    def _look_for_owner(self, now_ns: int) -> None:
        """Find out whether the owner can be reached again, also where no client comes who would show it."""
        owner = self._owner
        if owner is None or now_ns < self._look_ns:
            return
        self._look_ns = now_ns + LOOK_NS

        def look() -> None:
            if takes_connections(owner, LOOK_NS / 1e9):
                self._post(lambda: self._found(owner))

        threading.Thread(target=look, name="relay-look", daemon=True).start()

    def _found(self, owner: OwnerAddress) -> None:
        if owner == self._owner:
            self._reachable = True

    def _come(self, listening: socket.socket, listener: RelayListener) -> None:
        """Accept who has come, or leave them to others for a moment."""
        if not listener.late_ns:
            self._accept(listening, listener)
        else:
            self._epoll.modify(listening.fileno(), 0)
            self._late[listening.fileno()] = time.monotonic_ns() + listener.late_ns

    def _accept_late(self, now_ns: int) -> None:
        for fd, due_ns in list(self._late.items()):
            if now_ns >= due_ns:
                del self._late[fd]
                self._epoll.modify(fd, select.EPOLLIN)
                self._accept(*self._listening[fd])

    def _accept(self, listening: socket.socket, listener: RelayListener) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, peer = listening.accept()
            except OSError as fault:
                if fault.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):
                    log.warning("accept failed: %s", fault.strerror, extra=about(SOMEBODY))
                    # Out of descriptors or memory: it would be tried again and again.
                    self._epoll.modify(listening.fileno(), 0)
                    self._paused[listening.fileno()] = time.monotonic_ns() + PAUSE_NS
                return
            self.counts.accepted_total += 1
            reads = listener.pages is not None or listener.message is not None
            waiting = self._owner is None and not reads
            if len(self._all) >= MOST_CLIENTS or (waiting and len(self._held) >= MOST_HELD):
                self.counts.turned_away_total += 1
                sock.close()
                continue
            sock.setblocking(False)
            shown = RelayedClient(self._cell, self._member, listener.url, "", 0, "", 0)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                (host, port), (own_host, own_port) = peer[:2], sock.getsockname()[:2]
                shown = replace(shown, host=host, port=port, own_host=own_host, own_port=own_port)
            self._take(_Relayed(sock, listener, shown))

    def _resume(self, now_ns: int) -> None:
        for fd, until_ns in list(self._paused.items()):
            if now_ns >= until_ns:
                del self._paused[fd]
                self._epoll.modify(fd, select.EPOLLIN)

    def _take(self, relayed: _Relayed) -> None:
        self._all.add(relayed)
        self._young.add(relayed)
        self._sides[relayed.client.fd] = relayed.client
        relayed.deadline_ns = time.monotonic_ns() + self._hold_ns
        if relayed.listener.pages is not None or relayed.listener.message is not None:
            relayed.state = _State.READING
            self._watch(relayed.client, select.EPOLLIN)
        else:
            self._hold(relayed)

    def _hold(self, relayed: _Relayed) -> None:
        """Relay a client to the owner if there is one, else leave it unread until there is."""
        relayed.state = _State.HELD
        self._held.add(relayed)
        if self._owner is not None and time.monotonic_ns() >= self._retry_ns:
            self._connect(relayed, self._owner)

    def _change(self, owner: OwnerAddress | None) -> None:
        before, self._owner = self._owner, owner
        if owner == before:
            return
        self._retry_ns = self._ahead_ms = 0
        self._reachable = owner is not None
        self._found_at = None
        if owner is None:
            return
        if is_address(owner.host):
            self._found_at = owner.host, owner.port
        else:
            self._look_up(owner)
        for each in list(self._all):
            if each.state is _State.RELAYING and each.owner != owner:
                self._close(each)
            elif each.state in (_State.CONNECTING, _State.AWAITING) and each.owner != owner:
                self._part_upstream(each)
                self._hold(each)
            elif each.state is _State.HELD:
                self._connect(each, owner)

    def _look(self, now_ns: int) -> None:
        """Close those whose time is over, and ask an owner again that didn't answer."""
        again = self._owner is not None and now_ns >= self._retry_ns
        for each in list(self._young):
            if now_ns >= each.deadline_ns:
                if each.state in (_State.CONNECTING, _State.AWAITING):
                    self._unreachable("it doesn't answer in time")
                elif self._owner is not None and self._found_at is None:
                    self._unreachable("its name isn't looked up in time")
                self.counts.turned_away_total += 1
                self._close(each)
            elif each.state is _State.HELD and again and self._owner is not None:
                self._connect(each, self._owner)
                again = now_ns >= self._retry_ns

    # --- to the owner

    def _look_up(self, owner: OwnerAddress) -> None:
        """Look an owner's name up, on a thread: that may take as long as the system's resolver likes."""
        if self._looked_up == owner:
            return
        self._looked_up = owner

        def look_up() -> None:
            try:
                found = addresses_of(owner.host, owner.port, NAME_S)
            except OSError as fault:
                reason = fault.strerror or str(fault)
                self._post(lambda: self._has_looked_up(owner, None, reason))
            else:
                # A member that listens at a name does so at its IPv4 address.
                address = next((each for each in found if ":" not in each[0]), found[0])
                self._post(lambda: self._has_looked_up(owner, address, ""))

        threading.Thread(target=look_up, name="relay-name", daemon=True).start()

    def _has_looked_up(self, owner: OwnerAddress, address: tuple[str, int] | None, reason: str) -> None:
        if self._looked_up == owner:
            self._looked_up = None
        if owner != self._owner:
            return
        if address is None:
            if self._found_at is None:
                self._unreachable(reason)
            return
        is_new = self._found_at is None
        self._found_at = address
        if is_new:
            for each in list(self._held):
                self._connect(each, owner)

    def _connect(self, relayed: _Relayed, owner: OwnerAddress) -> None:
        if self._found_at is None:
            self._look_up(owner)
            return
        host, port = self._found_at
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError as fault:
            self._unreachable(fault.strerror or str(fault))
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            found = sock.connect_ex((host, port))
        except OSError as fault:
            sock.close()
            self._unreachable(fault.strerror or str(fault))
            return
        if found not in (0, errno.EINPROGRESS):
            sock.close()
            self._unreachable(os.strerror(found))
            return
        self._held.discard(relayed)
        relayed.owner = owner
        relayed.state = _State.CONNECTING
        relayed.heard = b""
        side = relayed.upstream = _Side(relayed, sock)
        self._sides[side.fd] = side
        self._watch(side, select.EPOLLOUT)

    def _unreachable(self, reason: str) -> None:
        if self._reachable:
            log.warning("the owner can't be reached: %s", reason)
        self._reachable = False
        self._retry_ns = time.monotonic_ns() + RETRY_NS
        if self._owner is not None and self._found_at is not None and not is_address(self._owner.host):
            # It may be elsewhere by now.
            self._look_up(self._owner)

    def _part_upstream(self, relayed: _Relayed) -> None:
        side, relayed.upstream = relayed.upstream, None
        if side is not None:
            self._drop(side)

    def _failed(self, relayed: _Relayed, reason: str) -> None:
        """The owner didn't take the client: it is held again, nothing of it was lost."""
        self._part_upstream(relayed)
        self._unreachable(reason)
        relayed.state = _State.HELD
        self._held.add(relayed)

    def _on_connecting(self, relayed: _Relayed, side: _Side) -> None:
        fault = side.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if fault:
            self._failed(relayed, os.strerror(fault))
            return
        relayed.nonce = os.urandom(header.NONCE_BYTES)
        now_ms = time.time_ns() // 1_000_000 + self._ahead_ms
        said = header.signed(relayed.shown, self._secret, now_ms, relayed.nonce)
        try:
            sent = side.sock.send(said)
        except OSError as failed:
            self._failed(relayed, failed.strerror or str(failed))
            return
        if sent < len(said):  # no socket is full at its first bytes
            self._failed(relayed, "it takes no header")
            return
        relayed.state = _State.AWAITING
        self._watch(side, select.EPOLLIN)

    def _on_answer(self, relayed: _Relayed, side: _Side) -> None:
        # Not a byte more than the answer: what follows is the client's.
        found = header.read_answer(relayed.heard)
        while found is None:
            known = len(relayed.heard) >= header.ANSWER_BYTES
            wanted = header.ANSWER_BYTES + relayed.heard[1] if known else header.ANSWER_BYTES
            try:
                data = side.sock.recv(wanted - len(relayed.heard))
            except BlockingIOError:
                return
            except OSError as fault:
                self._failed(relayed, fault.strerror or str(fault))
                return
            if not data:
                self._failed(relayed, "it closed the connection")
                return
            relayed.heard += data
            found = header.read_answer(relayed.heard)
        status, reason = found
        if status == header.CLOCK and self._sign_again(relayed, reason):
            return
        if status != header.ADMITTED:
            self.counts.refused_total += 1
            if status == header.REFUSED:  # this client's, for good
                log.info("%s: refused by the owner: %s", relayed.shown.host, reason)
                self._close(relayed)
            else:
                self._failed(relayed, reason)
            return
        self._reachable = True
        self.counts.relayed_total += 1
        relayed.state = _State.RELAYING
        self._young.discard(relayed)
        if relayed.first:
            side.pending, relayed.first = memoryview(relayed.first), b""
        self._flow(relayed, relayed.client, side)

    def _sign_again(self, relayed: _Relayed, reason: str) -> bool:
        """Ask the owner again by its own clock, once for each client; return whether that was begun."""
        owner_ms = header.read_clock(reason, self._secret, relayed.nonce)
        owner = relayed.owner
        if owner_ms is None or owner is None or relayed.is_signed_again:
            return False
        before_ms, self._ahead_ms = self._ahead_ms, owner_ms - time.time_ns() // 1_000_000
        if abs(self._ahead_ms - before_ms) > header.VALID_MS:
            text = "the clocks of %s and of this member are %.1f s apart: clients are passed on by its own"
            log.warning(text, owner.member, abs(self._ahead_ms) / 1000)
        relayed.is_signed_again = True
        self._part_upstream(relayed)
        relayed.state = _State.HELD
        self._held.add(relayed)
        self._connect(relayed, owner)
        return True

    # --- the bytes

    def _on_ready(self, side: _Side, mask: int) -> None:
        relayed = side.relayed
        state = relayed.state
        if state is _State.RELAYING:
            self._relay(relayed, side, mask)
        elif state is _State.READING:
            message = relayed.listener.message
            if message is None:
                self._on_request(relayed)
            else:
                self._on_message(relayed, message)
        elif state is _State.ANSWERING:
            self._on_answering(relayed)
        elif side is relayed.upstream:
            step = self._on_connecting if state is _State.CONNECTING else self._on_answer
            step(relayed, side)

    def _relay(self, relayed: _Relayed, side: _Side, mask: int) -> None:
        upstream = relayed.upstream
        assert upstream is not None
        other = upstream if side is relayed.client else relayed.client
        try:
            if mask & (select.EPOLLOUT | select.EPOLLERR) and side.pending is not None:
                self._send(side)
            if mask & ~select.EPOLLOUT and other.pending is None and not side.ended:
                self._read(side, other)
        except OSError:
            self._close(relayed)
            return
        self._flow(relayed, side, other)

    def _read(self, side: _Side, other: _Side) -> None:
        """Read once, and write as much of it as the other side takes."""
        try:
            count = side.sock.recv_into(self._buffer)
        except BlockingIOError:
            return
        if not count:
            side.ended = True
            return
        try:
            sent = other.sock.send(memoryview(self._buffer)[:count])
        except BlockingIOError:
            sent = 0
        if sent < count:
            other.pending = memoryview(bytes(self._buffer[sent:count]))

    def _send(self, side: _Side) -> None:
        assert side.pending is not None
        try:
            sent = side.sock.send(side.pending)
        except BlockingIOError:
            return
        side.pending = side.pending[sent:] if sent < len(side.pending) else None

    def _flow(self, relayed: _Relayed, one: _Side, other: _Side) -> None:
        """Pass on that a side has ended, and watch for what may happen next."""
        try:
            for side, its_other in ((one, other), (other, one)):
                if its_other.ended and side.pending is None and not side.shut:
                    side.shut = True
                    side.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(relayed)
            return
        if one.shut and other.shut:
            self._close(relayed)
            return
        for side, its_other in ((one, other), (other, one)):
            reads = select.EPOLLIN if its_other.pending is None and not side.ended else 0
            self._watch(side, reads | (select.EPOLLOUT if side.pending is not None else 0))

    # --- the first message

    def _on_message(self, relayed: _Relayed, message: FirstMessage) -> None:
        """Read the first message, and not a byte more: it is answered here, or goes to the owner."""
        try:
            while missing := message.missing_bytes(relayed.first):
                data = relayed.client.sock.recv(missing)
                if not data:
                    self._close(relayed)
                    return
                relayed.first += data
            answer = message.answer(relayed.first)
        except BlockingIOError:
            return
        except (OSError, ValueError) as fault:
            log.warning("a first message isn't passed on: %s", fault)
            self._close(relayed)
            return
        if answer:
            with suppress(OSError):
                relayed.client.sock.send(answer)
            self._close(relayed)
            return
        relayed.shown = replace(relayed.shown, digest=header.digest_of(relayed.first))
        self._watch(relayed.client, 0)
        self._hold(relayed)

    # --- pages of our own

    def _on_request(self, relayed: _Relayed) -> None:
        """Read the first line of a request: its path says whether it is for us."""
        try:
            data = relayed.client.sock.recv(LARGEST_LINE - len(relayed.first))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(relayed)
            return
        relayed.first += data
        line, newline, _ = relayed.first.partition(b"\n")
        if not newline and len(relayed.first) < LARGEST_LINE:
            return
        asked = line.decode("latin-1")
        path = asked_path(asked)
        pages = relayed.listener.pages
        found = pages(path) if pages is not None and path else None
        if found is None:
            self._watch(relayed.client, 0)
            self._hold(relayed)
            return
        relayed.client.pending = memoryview(written_answer(asked, found))
        relayed.state = _State.ANSWERING
        self._on_answering(relayed)

    def _on_answering(self, relayed: _Relayed) -> None:
        """Write the answer, then wait until the client has closed: closing first could cut the answer off."""
        side = relayed.client
        try:
            if side.pending is not None:
                self._send(side)
                if side.pending is None:
                    side.sock.shutdown(socket.SHUT_WR)
            elif not side.sock.recv_into(self._buffer):
                self._close(relayed)
                return
        except BlockingIOError:
            return
        except OSError:
            self._close(relayed)
            return
        self._watch(side, select.EPOLLIN if side.pending is None else select.EPOLLOUT)

    # --- sockets

    def _watch(self, side: _Side, mask: int) -> None:
        """Have epoll say these things of a socket; with none of them it is left out, as it may have ended."""
        if mask == side.mask:
            return
        if not side.mask:
            self._epoll.register(side.fd, mask)
        elif mask:
            self._epoll.modify(side.fd, mask)
        else:
            self._epoll.unregister(side.fd)
        side.mask = mask

    def _drop(self, side: _Side) -> None:
        self._watch(side, 0)
        self._sides.pop(side.fd, None)
        side.sock.close()

    def _close(self, relayed: _Relayed) -> None:
        if relayed.state is _State.CLOSED:
            return
        relayed.state = _State.CLOSED
        self._all.discard(relayed)
        self._held.discard(relayed)
        self._young.discard(relayed)
        self._part_upstream(relayed)
        self._drop(relayed.client)
