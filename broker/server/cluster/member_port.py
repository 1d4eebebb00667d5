"""The port other members relay clients to: reads who each client is, checks it, hands the socket on.

One thread. A connection that says no header in time, or a wrong one, is closed, counted and logged once for
its address within a while. A header is answered before the socket is handed on. A plain ``GET`` of HTTP is
answered with one of the member's own pages, for probes that can't ask the port for clients.

Headers are checked by the wall clock where that goes forward, and by the monotonic one where it was set back:
a header that was believed once doesn't come into its time again.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from broker.config.listeners import is_loopback
from broker.config.networks import written
from broker.errors import OperatorError
from broker.loggers import about
from broker.server.cluster import header
from broker.server.cluster.header import HeaderChecker, RelayedClient, RelayHeaderError, StaleHeaderError
from broker.server.cluster.listening import PAUSE_NS, listening_socket
from broker.server.cluster.pages import Answered, asked_path, written_answer

log = logging.getLogger("sluice.cluster")

HEADER_NS = 3_000_000_000
# Connections whose header isn't whole; the oldest makes room for the next one.
MOST_WAITING = 1024
ACCEPTS = 32
TICK_NS = 250_000_000
# One line about an address within this time.
QUIET_NS = 60_000_000_000
MOST_QUIET = 1000

# Of a request of HTTP, its headers included.
LARGEST_REQUEST = 8192
GET = b"GET "

Handover = Callable[[socket.socket], None]
Route = Callable[[RelayedClient], Handover | str]
# Find a page by its path.
AnyPage = Callable[[str], Answered]


class RelayedSocket(socket.socket):
    """A socket from another member, whose addresses are those of the client and of what it connected to."""

    def __init__(self, sock: socket.socket, client: RelayedClient) -> None:
        family, kind, proto = sock.family, sock.type, sock.proto
        super().__init__(family, kind, proto, sock.detach())
        self._client = client

    def dup(self) -> RelayedSocket:
        """Return another one of the same connection."""
        return RelayedSocket(socket.socket(fileno=os.dup(self.fileno())), self._client)

    def getpeername(self) -> tuple[str, int]:
        """Return the client's address."""
        return self._client.host, self._client.port

    def getsockname(self) -> tuple[str, int]:
        """Return the address the client connected to."""
        return self._client.own_host, self._client.own_port


class _Waiting:
    __slots__ = ("address", "answer", "data", "deadline_ns", "sock")

    def __init__(self, sock: socket.socket, address: str, deadline_ns: int) -> None:
        self.sock = sock
        self.address = address
        self.data = b""
        self.deadline_ns = deadline_ns
        # What is left of the answer to a request of HTTP; None while there is none.
        self.answer: memoryview | None = None


class MemberPort:
    """Listens from ``start`` to ``stop``. ``standby`` says why this member isn't the owner, empty if it is;
    ``route`` finds what takes a client's socket, or says why none does; ``pages`` are those that HTTP is
    answered with. All are called on the port's thread.
    """

    def __init__(
        self,
        host: str,
        port: int,
        cell: str,
        secret: bytes,
        standby: Callable[[], str],
        route: Route,
        pages: AnyPage | None = None,
    ) -> None:
        if not secret and not is_loopback(host):
            raise OperatorError(f"cluster.listen {written(host, port)}: needs secret_file")
        self.refused_total = 0
        self.bad_total = 0
        self.asked_total = 0
        self._address = host, port
        self._secret = secret
        self._checker = HeaderChecker(cell, secret)
        # By how much the clock of headers is ahead of the monotonic one.
        self._clock_ns = time.time_ns() - time.monotonic_ns()
        self._standby = standby
        self._route = route
        self._pages = pages
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waiting: dict[int, _Waiting] = {}
        self._said_ns: dict[str, int] = {}
        # Until when nobody is accepted, 0 while everybody is.
        self._paused_ns = 0
        self._listening: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Open the port, and return it. OperatorError if it can't be had."""
        host, port = self._address
        sock = listening_socket(host, port)
        self._listening = sock
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="member-port", daemon=True)
        self._thread.start()
        got: int = sock.getsockname()[1]
        return got

    def stop(self) -> None:
        """Close the port and what waits at it; clients that were handed on stay."""
        if self._thread is not None:
            with suppress(OSError):
                os.eventfd_write(self._bell, 1)
            self._thread.join(5)
            self._thread = None

    def _run(self) -> None:
        assert self._listening is not None
        gate = self._listening.fileno()
        try:
            while True:
                ticks = self._waiting or self._paused_ns
                for fd, _ in self._epoll.poll(TICK_NS / 1e9 if ticks else -1):
                    if fd == self._bell:
                        return
                    if fd == gate:
                        self._accept(self._listening)
                    elif fd in self._waiting:
                        self._on_ready(self._waiting[fd])
                now_ns = time.monotonic_ns()
                if self._paused_ns and now_ns >= self._paused_ns:
                    self._paused_ns = 0
                    self._epoll.modify(gate, select.EPOLLIN)
                self._look(now_ns)
        except Exception:
            log.exception("the port for members has failed")
        finally:
            for each in list(self._waiting.values()):
                self._drop(each)
            self._listening.close()
            self._epoll.close()
            os.close(self._bell)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, peer = listening.accept()
            except OSError as fault:
                if fault.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):
                    log.warning("the port for members: accept failed: %s", fault.strerror)
                    # Out of descriptors or memory: it would be tried again and again.
                    self._epoll.modify(listening.fileno(), 0)
                    self._paused_ns = time.monotonic_ns() + PAUSE_NS
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            came = _Waiting(sock, written(peer[0], peer[1]), time.monotonic_ns() + HEADER_NS)
            if len(self._waiting) >= MOST_WAITING:
                self._bad(next(iter(self._waiting.values())), "others want its place")
            self._waiting[sock.fileno()] = came
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _on_ready(self, came: _Waiting) -> None:
        if came.answer is not None:
            self._answer(came)
        elif self._pages is not None and came.data.startswith(GET):
            self._read_request(came, self._pages)
        else:
            self._read(came)

    def _read(self, came: _Waiting) -> None:
        """Read what the header still wants, and not a byte of the client's."""
        try:
            while self._pages is not None and len(came.data) < len(GET) and GET.startswith(came.data):
                data = came.sock.recv(len(GET) - len(came.data))
                if not data:
                    self._ended(came)
                    return
                came.data += data
            if self._pages is not None and came.data == GET:
                self._read_request(came, self._pages)
                return
            while missing := header.missing_bytes(came.data):
                data = came.sock.recv(missing)
                if not data:
                    self._ended(came)
                    return
                came.data += data
            client = self._checker.check(came.data, self._now_ms())
        except BlockingIOError:
            return
        except OSError as fault:
            self._bad(came, fault.strerror or str(fault))
        except StaleHeaderError as fault:
            # A member's, whose clock is another: it signs again, by this one.
            with suppress(OSError):
                came.sock.send(header.clock_answer(self._secret, fault.nonce, self._now_ms()))
            self._drop(came)
        except RelayHeaderError as fault:
            self._bad(came, str(fault))
        else:
            self._admit(came, client)

    def _now_ms(self) -> int:
        since_ns = time.monotonic_ns()
        self._clock_ns = max(self._clock_ns, time.time_ns() - since_ns)
        return (self._clock_ns + since_ns) // 1_000_000

    def _ended(self, came: _Waiting) -> None:
        if came.data:
            self._bad(came, "it ended before its header did")
        else:
            # Whoever only wanted to know whether somebody is here.
            self._drop(came)

    def _admit(self, came: _Waiting, client: RelayedClient) -> None:
        reason, status = self._standby(), header.NOT_OWNER
        found = reason or self._route(client)
        if isinstance(found, str):
            self.refused_total += 1
            status = status if reason else header.REFUSED
            with suppress(OSError):
                came.sock.send(header.answer(status, found))
            self._drop(came)
            return
        try:
            came.sock.send(header.answer(header.ADMITTED))
        except OSError as fault:
            self._bad(came, fault.strerror or str(fault))
            return
        self._forget(came)
        found(RelayedSocket(came.sock, client))

    def _read_request(self, came: _Waiting, pages: AnyPage) -> None:
        """Read a request with its headers: what is left unread would cut the answer off."""
        try:
            while b"\r\n\r\n" not in came.data:
                data = came.sock.recv(LARGEST_REQUEST - len(came.data))
                if not data:
                    self._bad(came, "no whole request")
                    return
                came.data += data
        except BlockingIOError:
            return
        except OSError as fault:
            self._bad(came, fault.strerror or str(fault))
            return
        self.asked_total += 1
        line = came.data.partition(b"\r\n")[0].decode("latin-1")
        came.answer = memoryview(written_answer(line, pages(asked_path(line))))
        self._answer(came)

    def _answer(self, came: _Waiting) -> None:
        """Write what is left of an answer, then wait until the client has closed."""
        assert came.answer is not None
        try:
            if came.answer:
                came.answer = came.answer[came.sock.send(came.answer) :]
                if came.answer:
                    self._epoll.modify(came.sock.fileno(), select.EPOLLOUT)
                else:
                    came.sock.shutdown(socket.SHUT_WR)
                    self._epoll.modify(came.sock.fileno(), select.EPOLLIN)
            elif not came.sock.recv(LARGEST_REQUEST):
                self._drop(came)
        except BlockingIOError:
            return
        except OSError:
            self._drop(came)

    def _look(self, now_ns: int) -> None:
        for each in list(self._waiting.values()):
            if each.deadline_ns > now_ns:
                break
            if each.answer is not None:
                self._drop(each)
            else:
                self._bad(each, "no header in time")

    def _bad(self, came: _Waiting, reason: str) -> None:
        self.bad_total += 1
        host, now_ns = came.address.rpartition(":")[0], time.monotonic_ns()
        if now_ns - self._said_ns.get(host, -QUIET_NS) >= QUIET_NS:
            if len(self._said_ns) >= MOST_QUIET:
                self._said_ns.clear()
            self._said_ns[host] = now_ns
            text = "%s: refused at the port for members: %s"
            log.warning(text, came.address, reason, extra=about(came.address, reason=reason))
        self._drop(came)

    def _forget(self, came: _Waiting) -> None:
        fd = came.sock.fileno()
        self._epoll.unregister(fd)
        del self._waiting[fd]

    def _drop(self, came: _Waiting) -> None:
        self._forget(came)
        came.sock.close()
