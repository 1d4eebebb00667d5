"""The broker's loop: epoll, connections, timers and what other threads post.

A turn reads what has arrived, lets the engine end its turn and writes what came of it. One bad
connection never harms another: whatever goes wrong while one is handled closes that one.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.amqp.container import Container
from broker.amqp.control.connection import ConnectionControl
from broker.amqp.control.sasl import Handshake
from broker.amqp.links.connection import ConnectionIO as Wire
from broker.amqp.loop.admission import Admission, why_gone
from broker.amqp.loop.control_quota import CostMeter
from broker.amqp.loop.handshake import HandshakeBudget, TlsHandshake, is_client_hello
from broker.amqp.loop.timers import NEVER_NS, Timer
from broker.config.networks import network_of, written
from broker.errors import OperatorError, PeerError
from broker.loggers import SOMEBODY, about
from broker.security.authentication import Authentication
from broker.security.exchange import Accepted, ListenerTrust, Refused

if TYPE_CHECKING:
    from broker.security.tls import ServerTls

log = logging.getLogger("sluice.amqp")

# How long a peer we have closed may take to hear it before its socket goes.
LINGER_NS = 2_000_000_000
# How long one whose input has ended may take to read what is left for it.
DRAIN_NS = 10_000_000_000
# Rounds of dispatch and flush in one turn, before new input is looked at again.
ROUNDS = 8
# What is done for a peer that reads no answers, about in microseconds.
MOST_OWED = 50_000
# Clients taken in at a time.
ACCEPTS = 8
MILLISECOND_NS = 1_000_000


class ClientSocket:
    """A socket from accept to close; ``peer`` is set once it has authenticated."""

    def __init__(
        self, sock: socket.socket, address: str, handshake: Handshake, gone: Callable[[], None] | None = None
    ) -> None:
        self.sock = sock
        self.gone = gone
        self.fd = sock.fileno()
        self.address = address
        self.handshake: Handshake | None = handshake
        self.peer: ConnectionControl | None = None
        self.armed = False
        self.paused = False
        self.ending = False
        self.closed = False
        self.unsent = b""
        self.debt = CostMeter(time.monotonic_ns())
        # When it last took something of what is written to it, while that waits; whether anybody minds.
        self.taken_ns = 0
        self.minded = False
        # Left unread until the lane comes to it.
        self.deferred = False
        # What is done for it is the lane's: it is deferred, or has moved no message yet.
        self.aside = True
        # When what it came in with holds no longer; 0 if it does for good.
        self.until_ns = 0
        # What is to happen to it at a time, each once: nothing, once it is closed.
        self.timers: dict[str, Timer] = {}
        # Its TLS, if it came by a listener that has it.
        self.greeting: TlsHandshake | None = None

    def has_moved(self) -> bool:
        """Whether a message of its has come or gone."""
        return self.peer is not None and (self.peer.wire.received or self.peer.wire.sent) > 0


class ListeningSocket:
    """One listening address."""

    def __init__(
        self, sock: socket.socket, allow_plain: bool, door: ListenerTrust, tls: ServerTls | None
    ) -> None:
        self.sock = sock
        self.allow_plain = allow_plain
        self.door = door
        self.tls = tls


class Reactor:
    """Runs one broker's connections on the calling thread.

    ``post`` is the only method another thread may call.
    """

    def __init__(self, container: Container, admission: Admission | None = None) -> None:
        self.container = container
        self.admission = admission or Admission(Authentication())
        self.engine = container.engine
        self.epoll = select.epoll()
        self.guests: dict[int, ClientSocket] = {}
        self.listeners: dict[int, ListeningSocket] = {}
        self.accepted_total = 0
        self._pace = HandshakeBudget()
        self._accepting = True
        self.lane = container.lane
        # Connections that aren't open yet, in the order they came.
        self._handshaking: dict[ClientSocket, None] = {}
        # Of whom more has been read than was handled.
        self._hungry: dict[ClientSocket, None] = {}
        self.longest_turn_ns = 0
        self.timers = container.timers
        self._inbox = container.inbox
        self.epoll.register(self._inbox.bell, select.EPOLLIN)
        storing = self.engine.storing
        self._store_bell = -1 if storing is None else storing.store.bell
        if self._store_bell >= 0:
            self.epoll.register(self._store_bell, select.EPOLLIN)
        self._running = True

    # --- for other threads

    def post(self, function: Callable[[], None]) -> None:
        """Run a function on the reactor's thread, soon; its exceptions are logged. After the end it isn't."""
        self._inbox.post(function)

    # --- setting up and running

    def listen(
        self, host: str, port: int, allow_plain: bool, door: ListenerTrust, tls: ServerTls | None = None
    ) -> int:
        """Listen on an address; the port it got. OperatorError if it is taken or not ours."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(self.container.settings.limits.listen_backlog)
        except OSError as fault:
            sock.close()
            raise OperatorError(f"cannot listen on {host}:{port}: {fault.strerror}") from fault
        self.listeners[sock.fileno()] = ListeningSocket(sock, allow_plain, door, tls)
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

    def adopt(
        self,
        sock: socket.socket,
        address: str,
        allow_plain: bool,
        door: ListenerTrust,
        gone: Callable[[], None],
    ) -> bool:
        """Take a connected socket as if it had been accepted here; if there is no room it is closed: false.

        ``gone`` is called once the connection is closed.
        """
        if not self._accepting:
            sock.close()
            return False
        return self._welcome(sock, address, allow_plain, door, gone)

    def at(self, when_ns: int, function: Callable[[int], None]) -> None:
        """Call ``function(now_ns)`` at a monotonic time."""
        self.timers.at(when_ns, function)

    def _at(self, when_ns: int, guest: ClientSocket, why: str, function: Callable[[int], None]) -> None:
        """The same unless the guest is closed by then, in place of what was to be for the same reason."""
        if why in guest.timers:
            self.timers.drop(guest.timers[why])
        guest.timers[why] = self.timers.at(when_ns, function)

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
        if self._hungry:
            self._go_on_reading(now_ns)
        for fd, mask in ready:
            self._on_ready(fd, mask, now_ns)
            # Dispatched while it is in the processor's cache (bench: 4+4).
            if self.engine.turn.dirty or self.container.turns:
                self._end_turn()
        if self._inbox.waiting:
            self._inbox.run()
        if self.timers.first_ns <= now_ns:
            self.timers.run(now_ns)
        # What came in is written while it is dispatched; what that settled is the next group.
        self.engine.seal()
        self._finish_turn()
        if self.lane.waiting or self.container.requests.waiting or self.container.parting:
            self._serve_lane(not ready)
        self.engine.seal()
        taken_ns = time.monotonic_ns() - now_ns
        if taken_ns > self.longest_turn_ns:
            self.longest_turn_ns = taken_ns

    def take_longest_turn(self) -> int:
        """The longest turn since this was last asked, in nanoseconds."""
        longest_ns, self.longest_turn_ns = self.longest_turn_ns, 0
        return longest_ns

    # --- one turn's parts

    def _timeout(self) -> float:
        container = self.container
        if self.engine.turn.dirty or container.to_flush or container.turns or self._hungry:
            return 0.0
        if self.lane.waiting or container.requests.waiting or container.parting:
            now_ns = time.monotonic_ns()
            # A moment for whoever moves messages, whose next may be on its way.
            return 0.0 if self.lane.is_quiet(now_ns) or self.lane.may_serve(now_ns) else 0.001
        deadline = self.engine.next_deadline()
        if deadline == 0 or self.timers.first_ns < deadline:
            deadline = self.timers.first_ns
        if deadline == NEVER_NS:
            return -1.0
        return max((deadline - time.monotonic_ns()) / 1e9, 0.0)

    def _on_ready(self, fd: int, mask: int, now_ns: int) -> None:
        guest = self.guests.get(fd)
        if guest is not None:
            aside = guest.aside
            if aside and not guest.ending and self._deferred(guest, mask, now_ns):
                return
            began_ns = time.monotonic_ns() if aside else 0
            peer = guest.peer
            try:
                if peer is not None and mask & select.EPOLLOUT:
                    guest.taken_ns = now_ns
                    self._unblocked(peer)
                if peer is None or guest.ending:
                    self._on_handshake(guest, mask)
                elif mask & ~select.EPOLLOUT:
                    self._read(guest, peer, now_ns)
            except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
                self._crash(guest, fault)
            if aside:
                self.lane.charge(time.monotonic_ns() - began_ns)
                guest.aside = guest.deferred or not guest.has_moved()
        elif fd in self.listeners:
            if self._may_now(now_ns):
                began_ns = time.monotonic_ns()
                self._accept(self.listeners[fd], now_ns)
                self.lane.charge(time.monotonic_ns() - began_ns)
            else:
                self._defer(fd)
        elif fd == self._inbox.bell:
            self._inbox.silence()
        elif fd == self._store_bell:
            self.engine.attend_store()

    def _read(self, guest: ClientSocket, peer: ConnectionControl, now_ns: int) -> None:
        wire = peer.wire
        if not wire.pump_in():
            guest.ending = True
            peer.input_ended()
            self._at(now_ns + DRAIN_NS, guest, "drain", lambda _: self._close(guest))
        elif wire.unusual or guest.deferred:
            self._weigh(guest, wire, now_ns)
        else:
            self.lane.moved_ns = now_ns

    def _weigh(self, guest: ClientSocket, wire: Wire, now_ns: int) -> None:
        """What its frames cost, and whether it is served with everybody else."""
        incoming = wire.incoming
        moved = wire.received + wire.sent
        if moved > guest.debt.moved:
            self.lane.moved_ns = now_ns
        guest.debt.charge(incoming.cost, moved, now_ns)
        if wire.blocked:
            wire.output_cost += incoming.cost
            if wire.output_cost > MOST_OWED and not wire.input_stopped:
                wire.input_stopped = True
                wire.mark()
        if guest.debt.costly:
            self._defer_guest(guest)
            return
        if guest.deferred:
            self._take_up(guest)
        if incoming.more or wire.held:
            self._hungry[guest] = None

    def _go_on_reading(self, now_ns: int) -> None:
        """What was read in an earlier turn, and was more than one should do."""
        hungry, self._hungry = self._hungry, {}
        for guest in hungry:
            # One that is left unread for now is hungry again when it isn't any more.
            if not (guest.closed or guest.ending or guest.deferred or guest.paused):
                self._on_ready(guest.fd, select.EPOLLIN, now_ns)

    # --- the lane of those that cost more than they bring

    def _may_now(self, now_ns: int) -> bool:
        """Whether there is time for a client that comes, and nobody waits for it."""
        lane = self.lane
        return not lane.waiting and (lane.may_serve(now_ns) or lane.is_quiet(now_ns))

    def _deferred(self, guest: ClientSocket, mask: int, now_ns: int) -> bool:
        """Whether it is left to the lane."""
        if mask & (select.EPOLLHUP | select.EPOLLERR):
            return False
        if guest.deferred:
            return not mask & select.EPOLLOUT
        if guest not in self._handshaking or mask & select.EPOLLOUT or self._may_now(now_ns):
            return False
        self._defer_guest(guest)
        return True

    def _defer_guest(self, guest: ClientSocket) -> None:
        if not guest.deferred:
            guest.deferred = guest.aside = True
            self.epoll.modify(guest.fd, select.EPOLLOUT if guest.armed else 0)
        self.lane.put(guest.fd)

    def _defer(self, fd: int) -> None:
        self.epoll.modify(fd, 0)
        self.lane.put(fd)

    def _take_up(self, guest: ClientSocket) -> None:
        """It is read like everybody else again."""
        guest.deferred = False
        guest.aside = not guest.has_moved()
        self.epoll.modify(guest.fd, self._interest(guest))

    @staticmethod
    def _interest(guest: ClientSocket) -> int:
        reads = 0 if guest.paused or guest.deferred else select.EPOLLIN
        return reads | (select.EPOLLOUT if guest.armed else 0)

    def _serve_lane(self, idle: bool) -> None:
        """One slice of one connection, or a few that knock, as far as there is time."""
        began_ns = time.monotonic_ns()
        if not self.lane.may_serve(began_ns) and not (idle or self.lane.is_quiet(began_ns)):
            return
        # Those who come, requests and connections that are over take turns.
        work = [
            function
            for function, waits in (
                (self._serve_next, self.lane.waiting),
                (self._answer_request, self.container.requests.waiting),
                (self._part_some, self.container.parting),
            )
            if waits
        ]
        work[self.lane.served_total % len(work)]()
        self._finish_turn()
        self.lane.charge(time.monotonic_ns() - began_ns)

    def _serve_next(self) -> None:
        fd = self.lane.take()
        guest = self.guests.get(fd)
        now_ns = time.monotonic_ns()
        if fd in self.listeners:
            self.epoll.modify(fd, select.EPOLLIN)
            self._accept(self.listeners[fd], now_ns)
        elif guest is not None and guest.deferred:
            self._serve(guest, now_ns)

    def _part_some(self) -> None:
        self.lane.served_total += 1
        try:
            self.container.shut_more()
        except Exception:
            log.exception("a connection's links could not be shut in order")
            self.container.parting.popitem()

    def _answer_request(self) -> None:
        self.lane.served_total += 1
        try:
            self.container.requests.answer_oldest()
        except Exception:
            log.exception("a management request failed")

    def _serve(self, guest: ClientSocket, now_ns: int) -> None:
        peer = guest.peer
        try:
            if peer is not None and not guest.ending and not guest.paused:
                self._read(guest, peer, now_ns)
                return
            self._take_up(guest)
            if peer is None:
                self._on_handshake(guest, select.EPOLLIN)
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            self._crash(guest, fault)

    def _unblocked(self, peer: ConnectionControl) -> None:
        peer.wire.blocked = False
        peer.wire.mark()
        for link in peer.wire.links:
            if link.node is not None:
                self.engine.mark_dirty(link.node)

    def _finish_turn(self) -> None:
        """Dispatch and flush until nothing is left to do, or for ``ROUNDS``, then the next turn goes on."""
        container = self.container
        for _ in range(ROUNDS):
            if self.engine.turn.dirty or container.turns:
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
                self._take_turns()
        except Exception:
            log.exception("a turn failed; the broker goes on with the next")
            self.engine.recover()

    def _take_turns(self) -> None:
        """Deal out what came free of connections' windows; it is dispatched."""
        turns = self.container.turns
        for _ in range(ROUNDS):
            wires = turns[:]
            turns.clear()
            for wire in wires:
                wire.turning = False
                self._take_turns_of(wire)

    def _take_turns_of(self, wire: Wire) -> None:
        shared = wire.shared
        idle = 0
        # A link that took nothing of its share has had its turn: when all have, none can take more.
        while shared is not None and shared.due() and idle <= len(wire.links):
            before = shared.unsettled
            wire.turning = True
            wire.take_turns()
            self.engine.end_turn()
            wire.turning = False
            idle = 0 if shared.unsettled > before else idle + 1

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
        elif wire.blocked != guest.armed or (wire.paused or wire.input_stopped) != guest.paused:
            if wire.blocked and not guest.armed:
                guest.taken_ns = self.engine.now_ns
                self._mind(guest)
            guest.armed = wire.blocked
            guest.paused = wire.paused or wire.input_stopped
            self.epoll.modify(fd, self._interest(guest))
            if (wire.incoming.more or wire.held) and not guest.paused and not guest.deferred:
                self._hungry[guest] = None

    def _mind(self, guest: ClientSocket) -> None:
        """Cut it off once it has taken nothing for as long as it may."""
        most_ns = self.container.settings.limits.send_timeout_ms * MILLISECOND_NS
        if not most_ns or guest.minded:
            return
        guest.minded = True

        def look(now_ns: int) -> None:
            guest.minded = False
            if guest.closed or not guest.armed or guest.peer is None:
                return
            if now_ns - guest.taken_ns < most_ns:
                self._mind(guest)
                return
            self.container.quotas.refuse("send_timeout")
            guest.peer.lose("amqp:resource-limit-exceeded", "it takes nothing of what is written to it")
            self._close(guest)

        self._at(guest.taken_ns + most_ns, guest, "send", look)

    # --- connections

    def _accept(self, listener: ListeningSocket, now_ns: int) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, (host, port, *_rest) = listener.sock.accept()
            except OSError as fault:
                if fault.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):
                    log.warning("accept failed: %s", fault.strerror, extra=about(SOMEBODY))
                    self._pause(listener, now_ns)
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            came = written(host, port), listener.allow_plain, listener.door
            self._welcome(sock, *came, tls=listener.tls)

    def _pause(self, listener: ListeningSocket, now_ns: int) -> None:
        """Out of descriptors or memory: stop accepting for a moment instead of spinning on it."""
        fd = listener.sock.fileno()
        self.epoll.modify(fd, 0)

        def resume(_: int) -> None:
            if fd in self.listeners:
                self.epoll.modify(fd, select.EPOLLIN)

        self.at(now_ns + 100 * MILLISECOND_NS, resume)

    def _welcome(
        self,
        sock: socket.socket,
        address: str,
        allow_plain: bool,
        door: ListenerTrust,
        gone: Callable[[], None] | None = None,
        tls: ServerTls | None = None,
    ) -> bool:
        limits = self.container.settings.limits
        if len(self.guests) >= limits.max_connections:
            text = "refused %s: %d connections are open"
            log.warning(text, address, len(self.guests), extra=about(address))
            return self._turn_away(sock, "max_connections", gone)
        network = network_of(address)
        if not self.container.quotas.admits(network):
            log.warning("refused %s: too many connections from there", address, extra=about(address))
            return self._turn_away(sock, "max_connections_per_address", gone)
        if len(self._handshaking) >= limits.max_handshakes:
            self._evict_oldest_handshake()
        sock.setblocking(False)
        handshake = self.admission.handshake(address, allow_plain, door, time.monotonic_ns)
        guest = ClientSocket(sock, address, handshake, gone)
        if tls is not None:
            guest.greeting = TlsHandshake(sock, tls, self._pace)
        self.accepted_total += 1
        self.guests[guest.fd] = guest
        self._handshaking[guest] = None
        self.container.quotas.came(network)
        self.epoll.register(guest.fd, select.EPOLLIN)

        def expire(_: int) -> None:
            if not guest.closed and (guest.peer is None or not guest.peer.is_open):
                text = "%s: no AMQP connection within the time for it"
                if guest.greeting is not None and guest.greeting.is_late():
                    text = "%s: no TLS handshake within the time for it"
                log.info(text, guest.address, extra=about(guest.address))
                self.container.quotas.refuse("handshake_timeout")
                self._close(guest)

        deadline_ns = time.monotonic_ns() + limits.handshake_timeout_ms * MILLISECOND_NS
        self._at(deadline_ns, guest, "open", expire)
        return True

    def _turn_away(self, sock: socket.socket, limit: str, gone: Callable[[], None] | None) -> bool:
        self.container.quotas.refuse(limit)
        sock.close()
        return False

    def _evict_oldest_handshake(self) -> None:
        """Too many aren't open yet: whoever has had the most time for it goes."""
        oldest = next(iter(self._handshaking))
        text = "%s: not open yet, and others want its place"
        log.info(text, oldest.address, extra=about(oldest.address))
        self.container.quotas.refuse("max_handshakes")
        self._close(oldest)

    def _on_handshake(self, guest: ClientSocket, mask: int) -> None:
        """Before authentication, and after the last word: plain socket reads, nothing reaches Proton."""
        if guest.greeting is not None and not guest.ending:
            self._on_greeting(guest, guest.greeting)
            return
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
        self._go_on(guest, guest.handshake, guest.handshake.feed(data))

    def _on_greeting(self, guest: ClientSocket, greeting: TlsHandshake) -> None:
        """The same through TLS, to the end of what has been read: epoll doesn't know of what TLS holds."""
        handshake = guest.handshake
        try:
            if not greeting.shake(self.engine.now_ns):
                return
            if handshake is not None and greeting.user:
                handshake.door = replace(handshake.door, external_user=greeting.user)
                greeting.user = ""
            while handshake is not None and guest.handshake is handshake and handshake.work is None:
                data = greeting.read()
                if data is None:
                    return
                if not data:
                    self._close(guest)
                    return
                self._go_on(guest, handshake, handshake.feed(data))
        except PeerError as fault:
            why = fault.description
            log.info("%s: refused: %s", guest.address, why, extra=about(guest.address, reason=why))
            self._linger(guest)

    def _go_on(self, guest: ClientSocket, handshake: Handshake, answer: bytes) -> None:
        """Send a handshake's answer, and do what it has come to."""
        if handshake.is_settled:
            self.admission.settled(handshake, guest.address, time.monotonic_ns())
        if answer and not self._send(guest, answer):
            self._close(guest)
        elif handshake.failed:
            why = handshake.failed
            if guest.greeting is None and is_client_hello(handshake.rest):
                why += ": the client speaks TLS, and this port is for amqp://"
            log.info("%s: refused: %s", guest.address, why, extra=about(guest.address, reason=why))
            self._linger(guest)
        elif handshake.done:
            self._introduce(guest)
        elif handshake.work is not None:
            self._wait_for_work(guest, handshake)

    def _wait_for_work(self, guest: ClientSocket, handshake: Handshake) -> None:
        """Nothing is read from it meanwhile; its deadline goes on."""
        self.epoll.modify(guest.fd, 0)

        def done(result: Accepted | Refused) -> None:
            if guest.handshake is handshake and not guest.closed:
                self.epoll.modify(guest.fd, select.EPOLLIN)
                self._go_on(guest, handshake, handshake.resume(result))
                if guest.greeting is not None and not guest.ending:
                    self._on_greeting(guest, guest.greeting)

        self.admission.work(handshake, guest.address, time.monotonic_ns, self.post, done)

    def _send(self, guest: ClientSocket, data: bytes) -> bool:
        """A handshake's few bytes fit any socket's buffer; a peer that doesn't take them is let go."""
        if guest.greeting is not None:
            return guest.greeting.stream.say(data)
        try:
            return guest.sock.send(data) == len(data)
        except OSError:
            return False

    def _introduce(self, guest: ClientSocket) -> None:
        handshake = guest.handshake
        if handshake is None or handshake.identity is None:
            return
        identity = self.admission.arrived(handshake)
        if identity is None:
            why = why_gone(handshake.identity)
            log.info("%s: refused: %s", guest.address, why, extra=about(guest.address, reason=why))
            self._linger(guest)
            return
        tls = None if guest.greeting is None else guest.greeting.stream
        door, opened = handshake.door, lambda: self._opened(guest)
        peer = ConnectionControl(self.container, guest.fd, guest.address, identity, door, opened, tls)
        if handshake.seconds:
            guest.until_ns = time.monotonic_ns() + int(handshake.seconds * 1e9)
        guest.peer = peer
        guest.handshake = None
        self.container.peers.add(peer)
        try:
            peer.wire.feed(handshake.rest)
            if peer.wire.incoming.more:
                self._hungry[guest] = None
        except Exception as fault:  # noqa: BLE001 - one connection's bug is that connection's end
            self._crash(guest, fault)
        peer.wire.mark()
        if tls is not None:
            # What was read behind the handshake is held there, and epoll doesn't know of it.
            self._on_ready(guest.fd, select.EPOLLIN, self.engine.now_ns)

    def _opened(self, guest: ClientSocket) -> None:
        self._handshaking.pop(guest, None)
        if "open" in guest.timers:
            self.timers.drop(guest.timers.pop("open"))
        self._at(self.engine.now_ns, guest, "tick", lambda now: self._tick(guest, now))

    def _tick(self, guest: ClientSocket, now_ns: int) -> None:
        """Idle timeouts both ways, known once the peer has opened; Proton says when to ask it again."""
        if guest.closed or guest.ending or guest.peer is None:
            return
        if 0 < guest.until_ns <= now_ns:
            guest.peer.close("amqp:unauthorized-access", "the token has expired")
            return
        following = guest.peer.wire.tick(now_ns // MILLISECOND_NS)
        again = following * MILLISECOND_NS if following > 0 else now_ns + 1000 * MILLISECOND_NS
        again = min(again, guest.until_ns or again)
        again = max(again, now_ns + MILLISECOND_NS)
        self._at(again, guest, "tick", lambda now: self._tick(guest, now))

    def _crash(self, guest: ClientSocket, fault: BaseException) -> None:
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

    def _linger(self, guest: ClientSocket) -> None:
        """Our last word is said: wait a moment for the peer to hear it, then close the socket.

        Closing at once with unread input would make the kernel send a reset, which can overtake
        the close frame that says why.
        """
        if guest.closed or (guest.ending and guest.peer is None and guest.handshake is None):
            return
        self._part(guest)
        guest.ending = True
        if guest.greeting is not None:
            guest.greeting.stream.bid_farewell()
        try:
            guest.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(guest)
            return
        self.epoll.modify(guest.fd, select.EPOLLIN)
        self.lane.drop(guest.fd)
        self._at(time.monotonic_ns() + LINGER_NS, guest, "end", lambda _: self._close(guest))

    def _part(self, guest: ClientSocket) -> None:
        if guest.handshake is not None:
            guest.handshake.work = None
        peer, guest.peer, guest.handshake = guest.peer, None, None
        if peer is not None:
            began_ns = time.monotonic_ns()
            self.container.peers.discard(peer)
            if peer.wire.tap is not None:
                peer.wire.tap.finish("the connection is closed")
            peer.say_closed()
            peer.free()
            if not guest.aside:
                self.lane.charge(time.monotonic_ns() - began_ns)

    def _close(self, guest: ClientSocket) -> None:
        if guest.closed:
            return
        guest.closed = True
        for timer in guest.timers.values():
            self.timers.drop(timer)
        guest.timers.clear()
        self._part(guest)
        self.lane.drop(guest.fd)
        self.epoll.unregister(guest.fd)
        guest.sock.close()
        self.guests.pop(guest.fd, None)
        self._handshaking.pop(guest, None)
        self.container.quotas.went(network_of(guest.address))
        if guest.gone is not None:
            guest.gone()

    def close_peers(self, condition: str, text: str) -> None:
        """Say goodbye to everybody (shutdown).

        A client that doesn't say what it is may be Proton's for Python. After a `close` that one reads no
        more, so that it isn't aware of the connection's end and comes back at its idle timeout only. It is
        left without one (against §2.4.3), as by a broker that was killed, and comes back at once. Where the
        socket is full it is told all the same.
        """
        for guest in list(self.guests.values()):
            peer = guest.peer
            if peer is None:
                self._close(guest)
            elif self._hears_no_close(guest, peer) and self._has_sent_all(peer):
                peer.lose(condition, text)
                self._linger(guest)
            else:
                peer.close(condition, text)

    def _hears_no_close(self, guest: ClientSocket, peer: ConnectionControl) -> bool:
        """Whether it may be Proton for Python, which doesn't speak over WebSockets."""
        return peer.is_open and guest.gone is None and not peer.names_its_product

    def _has_sent_all(self, peer: ConnectionControl) -> bool:
        peer.wire.pump_out()
        return not peer.wire.blocked

    def _close_all(self) -> None:
        self.stop_listening()
        for guest in list(self.guests.values()):
            self._close(guest)
        while self.container.parting:
            self._part_some()
        self.epoll.close()
        self._inbox.close()
