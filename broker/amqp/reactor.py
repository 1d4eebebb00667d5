"""The broker's loop: epoll, connections, timers and what other threads post.

A turn reads what has arrived, lets the engine end its turn and writes what came of it. One bad
connection never harms another: whatever goes wrong while one is handled closes that one.
"""

from __future__ import annotations

import errno
import heapq
import logging
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable

from broker.amqp.container import Container
from broker.amqp.peer import Peer
from broker.amqp.sasl import Handshake
from broker.errors import OperatorError
from broker.loggers import SOMEBODY, about

log = logging.getLogger("sluice.amqp")

BACKLOG = 1024
# How long a peer we have closed may take to hear it before its socket goes.
LINGER_NS = 2_000_000_000
# How long one whose input has ended may take to read what is left for it.
DRAIN_NS = 10_000_000_000
# Rounds of dispatch and flush in one turn, before new input is looked at again.
ROUNDS = 8
MILLISECOND_NS = 1_000_000


class Guest:
    """A socket from accept to close; ``peer`` is set once it has authenticated."""

    def __init__(
        self, sock: socket.socket, address: str, handshake: Handshake, gone: Callable[[], None] | None = None
    ) -> None:
        self.sock = sock
        self.gone = gone
        self.fd = sock.fileno()
        self.address = address
        self.handshake: Handshake | None = handshake
        self.peer: Peer | None = None
        self.armed = False
        self.paused = False
        self.ending = False
        self.closed = False
        self.unsent = b""


class Listener:
    """One listening address."""

    def __init__(self, sock: socket.socket, allow_plain: bool) -> None:
        self.sock = sock
        self.allow_plain = allow_plain


class Reactor:
    """Runs one broker's connections on the calling thread.

    ``post`` is the only method another thread may call. Timers are entries of a heap
    ``(when, number, function)``; a function that finds its reason gone does nothing.
    """

    def __init__(self, container: Container) -> None:
        self.container = container
        self.engine = container.engine
        container.at = self.at
        self.epoll = select.epoll()
        self.guests: dict[int, Guest] = {}
        self.listeners: dict[int, Listener] = {}
        self.accepted_total = 0
        self._accepting = True
        self._timers: list[tuple[int, int, Callable[[int], None]]] = []
        self._timer_number = 0
        self._inbox: deque[Callable[[], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.epoll.register(self._bell, select.EPOLLIN)
        storing = self.engine.storing
        self._store_bell = -1 if storing is None else storing.store.bell
        if self._store_bell >= 0:
            self.epoll.register(self._store_bell, select.EPOLLIN)
        self._running = True

    # --- for other threads

    def post(self, function: Callable[[], None]) -> None:
        """Run a function on the reactor's thread, soon; its exceptions are logged. After the end it isn't."""
        if self._bell < 0:
            return
        self._inbox.append(function)
        os.eventfd_write(self._bell, 1)

    # --- setting up and running

    def listen(self, host: str, port: int, allow_plain: bool) -> int:
        """Listen on an address; the port it got. OperatorError if it is taken or not ours."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(BACKLOG)
        except OSError as fault:
            sock.close()
            raise OperatorError(f"cannot listen on {host}:{port}: {fault.strerror}") from fault
        self.listeners[sock.fileno()] = Listener(sock, allow_plain)
        self.epoll.register(sock.fileno(), select.EPOLLIN)
        got: int = sock.getsockname()[1]
        return got

    def stop_listening(self) -> None:
        """Accept nobody any more."""
        self._accepting = False
        for fd, listener in list(self.listeners.items()):
            self.epoll.unregister(fd)
            listener.sock.close()
            del self.listeners[fd]

    def adopt(self, sock: socket.socket, address: str, allow_plain: bool, gone: Callable[[], None]) -> bool:
        """Take a connected socket as if it had been accepted here; if there is no room it is closed: false.

        ``gone`` is called once the connection is closed.
        """
        if not self._accepting:
            sock.close()
            return False
        return self._welcome(sock, address, allow_plain, gone)

    def at(self, when_ns: int, function: Callable[[int], None]) -> None:
        """Call ``function(now_ns)`` at a monotonic time."""
        self._timer_number += 1
        heapq.heappush(self._timers, (when_ns, self._timer_number, function))

    def stop(self) -> None:
        """Leave ``run`` after this turn."""
        self._running = False

    def run(self) -> None:
        """Turn until ``stop``; closes every socket when it is done."""
        try:
            while self._running:
                self.turn()
        finally:
            self._close_all()

    def turn(self) -> None:
        """Wait for something to happen, handle it, write what came of it."""
        ready = self.epoll.poll(self._timeout())
        now_ns = time.monotonic_ns()
        self._begin_turn(now_ns)
        for fd, mask in ready:
            self._on_ready(fd, mask, now_ns)
            # Dispatched while it is in the processor's cache (bench: 4+4).
            if self.engine.dirty or self.container.turns:
                self._end_turn()
        if self._inbox:
            self._run_inbox()
        if self._timers and self._timers[0][0] <= now_ns:
            self._run_timers(now_ns)
        # What came in is written while it is dispatched; what that settled is the next group.
        self.engine.seal()
        self._finish_turn()
        self.engine.seal()

    # --- one turn's parts

    def _timeout(self) -> float:
        if self.engine.dirty or self.container.to_flush or self.container.turns:
            return 0.0
        deadline = self.engine.next_deadline()
        if self._timers and (deadline == 0 or self._timers[0][0] < deadline):
            deadline = self._timers[0][0]
        if deadline == 0:
            return -1.0
        return max((deadline - time.monotonic_ns()) / 1e9, 0.0)

    def _on_ready(self, fd: int, mask: int, now_ns: int) -> None:
        guest = self.guests.get(fd)
        if guest is not None:
            peer = guest.peer
            try:
                if peer is not None and mask & select.EPOLLOUT:
                    self._unblocked(peer)
                if peer is None or guest.ending:
                    self._on_handshake(guest, mask)
                elif mask & ~select.EPOLLOUT and not peer.wire.pump_in():
                    guest.ending = True
                    peer.input_ended()
                    self.at(now_ns + DRAIN_NS, lambda _: self._close(guest))
            except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
                self._crash(guest, fault)
        elif fd in self.listeners:
            self._accept(self.listeners[fd], now_ns)
        elif fd == self._bell:
            os.eventfd_read(self._bell)
        elif fd == self._store_bell:
            self.engine.attend_store()

    def _unblocked(self, peer: Peer) -> None:
        peer.wire.blocked = False
        peer.wire.mark()
        for link in peer.wire.links:
            if link.node is not None:
                self.engine.touch(link.node)

    def _finish_turn(self) -> None:
        """Dispatch and flush until nothing is left to do, or for ``ROUNDS``, then the next turn goes on."""
        container = self.container
        for _ in range(ROUNDS):
            if self.engine.dirty or container.turns:
                self._end_turn()
            if container.answers:
                self._answer()
            if not container.to_flush:
                return
            wires = container.to_flush[:]
            container.to_flush.clear()
            for wire in wires:
                self._flush(wire.fd)

    def _begin_turn(self, now_ns: int) -> None:
        try:
            self.engine.begin_turn(now_ns)
        except Exception:
            log.exception("a turn could not begin in order; the broker goes on with it")

    def _end_turn(self) -> None:
        try:
            self.engine.end_turn()
            if self.container.turns:
                self.container.take_turns()
        except Exception:
            log.exception("a turn failed; the broker goes on with the next")
            self.engine.recover()

    def _answer(self) -> None:
        """Drains whose messages are not all written yet are asked again in the next turn."""
        self.container.answers[:] = [link for link in self.container.answers if not link.answer_drain()]

    def _flush(self, fd: int) -> None:
        guest = self.guests.get(fd)
        if guest is None or guest.peer is None:
            return
        wire = guest.peer.wire
        try:
            alive = wire.pump_out()
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            self._crash(guest, fault)
            return
        if not alive or (guest.ending and not wire.blocked):
            self._linger(guest)
        elif wire.blocked != guest.armed or wire.paused != guest.paused:
            guest.armed = wire.blocked
            guest.paused = wire.paused
            mask = 0 if guest.paused else select.EPOLLIN
            self.epoll.modify(fd, mask | (select.EPOLLOUT if guest.armed else 0))

    def _run_inbox(self) -> None:
        for _ in range(len(self._inbox)):
            function = self._inbox.popleft()
            try:
                function()
            except Exception:
                log.exception("a posted task failed")

    def _run_timers(self, now_ns: int) -> None:
        while self._timers and self._timers[0][0] <= now_ns:
            _, _, function = heapq.heappop(self._timers)
            try:
                function(now_ns)
            except Exception:
                log.exception("a timer failed")

    # --- connections

    def _accept(self, listener: Listener, now_ns: int) -> None:
        for _ in range(64):
            try:
                sock, (host, port, *_rest) = listener.sock.accept()
            except OSError as fault:
                if fault.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):
                    log.warning("accept failed: %s", fault.strerror, extra=about(SOMEBODY))
                    self._pause(listener, now_ns)
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._welcome(sock, f"{host}:{port}", listener.allow_plain)

    def _pause(self, listener: Listener, now_ns: int) -> None:
        """Out of descriptors or memory: stop accepting for a moment instead of spinning on it."""
        fd = listener.sock.fileno()
        self.epoll.modify(fd, 0)

        def resume(_: int) -> None:
            if fd in self.listeners:
                self.epoll.modify(fd, select.EPOLLIN)

        self.at(now_ns + 100 * MILLISECOND_NS, resume)

    def _welcome(
        self, sock: socket.socket, address: str, allow_plain: bool, gone: Callable[[], None] | None = None
    ) -> bool:
        limits = self.container.settings.limits
        if len(self.guests) >= limits.max_connections:
            text = "refused %s: %d connections are open"
            log.warning(text, address, len(self.guests), extra=about(address))
            sock.close()
            return False
        sock.setblocking(False)
        guest = Guest(sock, address, Handshake(allow_plain), gone)
        self.accepted_total += 1
        self.guests[guest.fd] = guest
        self.epoll.register(guest.fd, select.EPOLLIN)

        def expire(_: int) -> None:
            if not guest.closed and (guest.peer is None or not guest.peer.is_open):
                text = "%s: no AMQP connection within the time for it"
                log.info(text, guest.address, extra=about(guest.address))
                self._close(guest)

        self.at(time.monotonic_ns() + limits.handshake_timeout_ms * MILLISECOND_NS, expire)
        return True

    def _on_handshake(self, guest: Guest, mask: int) -> None:
        """Before authentication, and after the last word: plain socket reads, nothing reaches Proton."""
        try:
            data = guest.sock.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(guest)
            return
        if guest.ending or guest.handshake is None:
            return
        answer = guest.handshake.feed(data)
        if answer and not self._send(guest, answer):
            self._close(guest)
        elif guest.handshake.failed:
            why = guest.handshake.failed
            log.info("%s: refused: %s", guest.address, why, extra=about(guest.address, reason=why))
            self._linger(guest)
        elif guest.handshake.done:
            self._introduce(guest)

    def _send(self, guest: Guest, data: bytes) -> bool:
        """A handshake's few bytes fit any socket's buffer; a peer that doesn't take them is let go."""
        try:
            return guest.sock.send(data) == len(data)
        except OSError:
            return False

    def _introduce(self, guest: Guest) -> None:
        handshake = guest.handshake
        if handshake is None:
            return
        peer = Peer(self.container, guest.fd, guest.address, handshake.user)
        peer.on_open = lambda: self.at(self.engine.now_ns, lambda now: self._tick(guest, now))
        guest.peer = peer
        guest.handshake = None
        self.container.peers.add(peer)
        try:
            peer.wire.feed(handshake.rest)
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            self._crash(guest, fault)
        peer.wire.mark()

    def _tick(self, guest: Guest, now_ns: int) -> None:
        """Idle timeouts both ways, known once the peer has opened; Proton says when to ask it again."""
        if guest.closed or guest.ending or guest.peer is None:
            return
        following = guest.peer.wire.tick(now_ns // MILLISECOND_NS)
        again = following * MILLISECOND_NS if following > 0 else now_ns + 1000 * MILLISECOND_NS
        self.at(max(again, now_ns + MILLISECOND_NS), lambda now: self._tick(guest, now))

    def _crash(self, guest: Guest, fault: BaseException) -> None:
        peer = guest.peer
        if peer is None:
            return
        try:
            peer.wire.skip_event()
            peer.crash(fault)
            peer.wire.pump_out()
        except Exception:
            log.exception("%s: could not be closed in order", guest.address, extra=about(guest.address))
        self._linger(guest)

    def _linger(self, guest: Guest) -> None:
        """Our last word is said: wait a moment for the peer to hear it, then close the socket.

        Closing at once with unread input would make the kernel send a reset, which can overtake
        the close frame that says why.
        """
        if guest.closed or (guest.ending and guest.peer is None and guest.handshake is None):
            return
        self._part(guest)
        guest.ending = True
        try:
            guest.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(guest)
            return
        self.epoll.modify(guest.fd, select.EPOLLIN)
        self.at(time.monotonic_ns() + LINGER_NS, lambda _: self._close(guest))

    def _part(self, guest: Guest) -> None:
        peer, guest.peer, guest.handshake = guest.peer, None, None
        if peer is not None:
            self.container.peers.discard(peer)
            if peer.wire.tap is not None:
                peer.wire.tap.finish("the connection is closed")
            peer.say_closed()
            peer.free()

    def _close(self, guest: Guest) -> None:
        if guest.closed:
            return
        guest.closed = True
        self._part(guest)
        self.epoll.unregister(guest.fd)
        guest.sock.close()
        self.guests.pop(guest.fd, None)
        if guest.gone is not None:
            guest.gone()

    def close_peers(self, condition: str, text: str) -> None:
        """Say goodbye to everybody (shutdown)."""
        for guest in list(self.guests.values()):
            if guest.peer is not None:
                guest.peer.close(condition, text)
            else:
                self._close(guest)

    def _close_all(self) -> None:
        self.stop_listening()
        for guest in list(self.guests.values()):
            self._close(guest)
        self.epoll.close()
        bell, self._bell = self._bell, -1
        os.close(bell)
