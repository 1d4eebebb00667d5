"""A client of NATS: one connection, no thread, nothing sent again by itself.

Only what a replicated log needs: publish, subscribe, request. Whatever doesn't come to its end in time raises
LogUnavailable, and the connection is of no use then: what became of messages that were sent isn't known.
The protocol is NATS's own (https://docs.nats.io/reference/reference-protocols/nats-protocol).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from broker.cluster.log import LogUnavailable
from broker.cluster.names import connected

DEFAULT_PORT = 4222
READ_BYTES = 1 << 18
# A line of the server's that is longer is none of NATS.
MOST_LINE_BYTES = 1 << 16
MOST_MESSAGE_BYTES = 64 << 20
CRLF = b"\r\n"


class Message(NamedTuple):
    """A message that came: by which subscription, its headers as they stand on the wire, its bytes."""

    subscription: int
    subject: str
    reply: str
    headers: bytes
    data: bytes

    def header(self, name: bytes) -> bytes:
        """Return one header's value, empty where there is none."""
        at = self.headers.find(b"\r\n" + name + b":")
        if at < 0:
            return b""
        begin = at + len(name) + 3
        return self.headers[begin : self.headers.find(CRLF, begin)].strip()

    @property
    def status(self) -> int:
        """The status that stands instead of a message, 0 where it is a message."""
        line = self.headers[: self.headers.find(CRLF)]
        words = line.split(None, 2)
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


@dataclass(frozen=True, slots=True)
class NatsLogin:
    """Who this client is, as the servers ask for it: a name and password, or a token."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def options(self) -> dict[str, str]:
        """Return it as CONNECT has it."""
        named = {"user": self.user, "pass": self.password, "auth_token": self.token}
        return {name: value for name, value in named.items() if value}


class NatsParser:
    """Bytes from a server into operations, whatever pieces they come in. It knows no socket."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def next(self) -> tuple[str, Any] | None:
        """Return the next operation that is whole: ("MSG", Message), ("INFO", dict), ("-ERR", text), or a
        bare word with None. None where more bytes are needed. Raises ValueError where they are none of NATS.
        """
        end = self._buffer.find(CRLF, self._at)
        if end < 0:
            if len(self._buffer) - self._at > MOST_LINE_BYTES:
                raise ValueError("a line without an end")
            return None
        line = bytes(self._buffer[self._at : end])
        word, _, rest = line.partition(b" ")
        name = word.upper()
        if name in (b"MSG", b"HMSG"):
            return self._message(name == b"HMSG", rest, end + 2)
        self._at = end + 2
        if name == b"INFO":
            return "INFO", json.loads(rest)
        if name == b"-ERR":
            return "-ERR", rest.decode(errors="replace").strip(" '")
        if name in (b"PING", b"PONG", b"+OK"):
            return name.decode(), None
        raise ValueError(f"an operation {line[:40]!r}")

    def _message(self, has_headers: bool, rest: bytes, begin: int) -> tuple[str, Message] | None:
        words = rest.split()
        sizes = 2 if has_headers else 1
        if not 2 + sizes <= len(words) <= 3 + sizes:
            raise ValueError(f"a message {rest[:80]!r}")
        reply = words[2].decode() if len(words) == 3 + sizes else ""
        total = int(words[-1])
        head = int(words[-2]) if has_headers else 0
        if not 0 <= head <= total <= MOST_MESSAGE_BYTES:
            raise ValueError(f"a message of {total} bytes")
        if len(self._buffer) < begin + total + 2:
            return None
        if self._buffer[begin + total : begin + total + 2] != CRLF:
            raise ValueError("a message that doesn't end where it says")
        self._at = begin + total + 2
        headers = bytes(self._buffer[begin : begin + head])
        data = bytes(self._buffer[begin + head : begin + total])
        return "MSG", Message(int(words[1]), words[0].decode(), reply, headers, data)


class NatsConnection:
    """A connection to the first server of several that answers. All of it is for one thread.

    ``info`` is what the server says of itself. Raises LogUnavailable where none can be had in time, or none
    lets this client in.
    """

    def __init__(
        self,
        urls: Sequence[str],
        timeout_s: float,
        login: NatsLogin | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._login = login or NatsLogin()
        self._tls = tls
        self._messages: deque[Message] = deque()
        self._subscriptions = 0
        # Those whose messages are wanted: an answer may come twice, and late.
        self._live: set[int] = set()
        self._pongs = 0
        self._pings = 0
        self._is_sending = False
        self.info: dict[str, Any] = {}
        self.url = ""
        # When the server was heard last, in monotonic nanoseconds.
        self.heard_ns = 0
        faults = []
        for url in urls:
            try:
                self._connect(url)
            except (OSError, ValueError, LogUnavailable) as fault:
                faults.append(f"{url}: {fault}")
                continue
            self.url = url
            return
        raise LogUnavailable("; ".join(faults) or "no server is named")

    def fileno(self) -> int:
        """The socket's descriptor, to wait for messages."""
        return self._sock.fileno()

    def publish(self, subject: str, data: bytes, reply: str = "", headers: bytes = b"") -> None:
        """Send a message; ``headers`` are lines as NATS has them, with the version's and an empty one."""
        names = f"{subject} {reply}" if reply else subject
        if headers:
            line = f"HPUB {names} {len(headers)} {len(headers) + len(data)}\r\n"
        else:
            line = f"PUB {names} {len(data)}\r\n"
        self._send([line.encode() + headers, data, CRLF])

    def subscribe(self, subject: str) -> int:
        """Have messages of a subject come; return the subscription's number."""
        self._subscriptions += 1
        self._live.add(self._subscriptions)
        self._send([f"SUB {subject} {self._subscriptions}\r\n".encode()])
        return self._subscriptions

    def unsubscribe(self, subscription: int) -> None:
        """Have none of them come any more; those that came, and those on their way, are dropped."""
        self._live.discard(subscription)
        self._messages = deque(each for each in self._messages if each.subscription != subscription)
        self._send([f"UNSUB {subscription}\r\n".encode()])

    def messages(self, timeout_s: float, *, wake: int = -1) -> list[Message]:
        """Return what has come, waiting so long for the first; ``wake``: a descriptor that ends the wait."""
        if not self._messages:
            self._wait(timeout_s, wake)
        found = list(self._messages)
        self._messages.clear()
        return found

    def request(self, subject: str, data: bytes = b"", again_s: float | None = None) -> Message:
        """Send a message and return its answer; other messages that come meanwhile are kept.

        With ``again_s`` it is sent again each time that so much has passed: for a question that nobody hears
        until a leader is elected, and that may be answered twice.
        """
        inbox = new_inbox()
        subscription = self.subscribe(inbox)
        deadline = time.monotonic() + self._timeout_s
        again = math.inf if again_s is None else again_s
        try:
            due = -math.inf
            while True:
                for at, message in enumerate(self._messages):
                    if message.subscription == subscription:
                        del self._messages[at]
                        return message
                now = time.monotonic()
                if now >= deadline:
                    raise LogUnavailable(f"{self.url}: no answer to {subject}")
                if now >= due:
                    self.publish(subject, data, inbox)
                    due = now + again
                self._wait(min(due, deadline) - now)
        finally:
            with contextlib.suppress(LogUnavailable):
                self.unsubscribe(subscription)

    def close(self) -> None:
        """Let go of the socket."""
        self._sock.close()

    # --- inside

    def _connect(self, url: str) -> None:
        where = urlsplit(url if "://" in url else f"nats://{url}")
        self._parser = NatsParser()
        host, port = where.hostname or "127.0.0.1", where.port or DEFAULT_PORT
        self._sock: socket.socket = connected(host, port, self._timeout_s)
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sock.setblocking(False)
            deadline = time.monotonic() + self._timeout_s
            while not self.info:
                self._wait(self._left(deadline))
            if self._tls is not None or self.info.get("tls_required"):
                context = self._tls() if self._tls is not None else ssl.create_default_context()
                self._sock.setblocking(True)
                self._sock.settimeout(self._timeout_s)
                self._sock = context.wrap_socket(self._sock, server_hostname=where.hostname)
                self._sock.setblocking(False)
            options: dict[str, object] = {
                "verbose": False,
                "pedantic": False,
                "lang": "python",
                "version": "1",
                "protocol": 1,
                "headers": True,
                "no_responders": True,
                "echo": False,
                "name": "sluice",
                **self._login.options(),
            }
            self._send([b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n"])
            while not self._pongs:
                self._wait(self._left(deadline))
        except BaseException:
            self._sock.close()
            self.info = {}
            raise

    def _left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise LogUnavailable("no answer in time")
        return left

    def _send(self, pieces: list[bytes]) -> None:
        left: list[memoryview] = [memoryview(piece) for piece in pieces if piece]
        self._is_sending = True
        try:
            self._send_all(left)
        finally:
            self._is_sending = False
        self._answer_pings()

    def _answer_pings(self) -> None:
        """Answer what the server asked; never between the pieces of a message that is half sent."""
        while self._pings and not self._is_sending:
            self._pings -= 1
            self._send([b"PONG\r\n"])

    def _send_all(self, left: list[memoryview]) -> None:
        deadline = time.monotonic() + self._timeout_s
        while left:
            try:
                if isinstance(self._sock, ssl.SSLSocket):
                    sent = self._sock.send(left[0])
                else:
                    sent = self._sock.sendmsg(left)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                # Two that only send to each other would wait for ever.
                self._receive()
                rest = deadline - time.monotonic()
                if rest <= 0:
                    raise LogUnavailable(f"{self.url}: takes nothing") from None
                wait_ready(rest, self._sock.fileno(), writes=True)
                continue
            except OSError as fault:
                raise LogUnavailable(f"{self.url}: {fault.strerror or fault}") from fault
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left and sent:
                left[0] = left[0][sent:]

    def _wait(self, timeout_s: float, wake: int = -1) -> None:
        # TLS may keep back what it has read. Else the first look would be in vain, and each lets go of the
        # interpreter's lock, for which a busy thread makes this one wait.
        if isinstance(self._sock, ssl.SSLSocket) and self._receive():
            return
        if self._sock.fileno() in wait_ready(timeout_s, self._sock.fileno(), wake):
            self._receive()

    def _receive(self) -> bool:
        """Read what is there; return whether anything was."""
        found = False
        while True:
            try:
                data = self._sock.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return found
            except OSError as fault:
                raise LogUnavailable(f"{self.url}: {fault.strerror or fault}") from fault
            if not data:
                raise LogUnavailable(f"{self.url}: the server closed the connection")
            found = True
            self.heard_ns = time.monotonic_ns()
            self._parser.feed(data)
            try:
                while (operation := self._parser.next()) is not None:
                    self._handle(*operation)
            except (ValueError, RecursionError) as fault:
                raise LogUnavailable(f"{self.url}: the server sends what isn't NATS: {fault}") from fault
            # TLS hands over a record at a time, and what it keeps back makes no socket readable.
            if len(data) < READ_BYTES and not isinstance(self._sock, ssl.SSLSocket):
                return found

    def _handle(self, name: str, value: Any) -> None:
        if name == "MSG":
            if value.subscription in self._live:
                self._messages.append(value)
        elif name == "PING":
            self._pings += 1
            self._answer_pings()
        elif name == "PONG":
            self._pongs += 1
        elif name == "INFO":
            self.info = value
        elif name == "-ERR":
            raise LogUnavailable(f"{self.url}: {value}")


def wait_ready(timeout_s: float, *descriptors: int, writes: bool = False) -> list[int]:
    """Wait until one of the descriptors can be read, or with ``writes`` written; return those that are ready.

    Negative ones are left out. Unlike select it takes descriptors above 1,023, which a broker with many
    connections has.
    """
    waiting = select.poll()
    for each in descriptors:
        if each >= 0:
            waiting.register(each, select.POLLIN | (select.POLLOUT if writes else 0))
    return [each for each, _ in waiting.poll(max(timeout_s, 0) * 1000)]


def new_inbox() -> str:
    """Return a subject that nobody else has."""
    return f"_INBOX.{os.urandom(12).hex()}"
