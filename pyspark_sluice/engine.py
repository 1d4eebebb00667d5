"""Proton's engine on one socket that is logged in: bytes in, events out, bytes out.

``python-qpid-proton``'s C functions are called directly (``cproton_ffi``): its Python classes cost a hundred
times as much for each message. Belongs to one thread. Knows no links: its owner gets Proton's events.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

import cproton  # noqa: F401  it prepares the library
from cproton_ffi import ffi, lib

from .errors import AmqpError, RefusedError, UnreachableError

MAX_FRAME = 65536
_BUFFER = 1 << 18
_AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# What Proton's objects are to Python: nothing it could check.
Handle = Any


class Engine:
    """An AMQP connection with one session, opened. The owner calls ``read``, handles the events in
    ``collector``, and calls ``write``; ``close`` frees what Proton holds."""

    def __init__(self, stream: socket.socket, container: str, hostname: str, heartbeat_s: float) -> None:
        self.stream = stream
        self.transport: Handle = lib.pn_transport()
        self.connection: Handle = lib.pn_connection()
        self.collector: Handle = lib.pn_collector()
        self._out = ffi.new("char[]", _BUFFER)
        self._view = memoryview(ffi.buffer(self._out))
        self._ended = False
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_transport_set_max_frame(self.transport, MAX_FRAME)
        lib.pn_transport_set_idle_timeout(self.transport, int(heartbeat_s * 1000))
        lib.pn_connection_set_container(self.connection, container.encode())
        lib.pn_connection_set_hostname(self.connection, hostname.encode())
        lib.pn_transport_bind(self.transport, self.connection)
        lib.pn_connection_open(self.connection)
        self.session: Handle = lib.pn_session(self.connection)
        lib.pn_session_open(self.session)

    def fileno(self) -> int:
        """The socket's."""
        return self.stream.fileno()

    def tick(self) -> float | None:
        """Does what is due by the clock; the monotonic time of the next such thing, if there is one."""
        at_ms = lib.pn_transport_tick(self.transport, time.monotonic_ns() // 1_000_000)
        return at_ms / 1000 if at_ms > 0 else None

    def read(self) -> bool:
        """Takes in what has arrived, a buffer of it at most; false if there is no more now."""
        if self._ended:
            return False
        try:
            came = self.stream.recv(_BUFFER)
        except _AGAIN:
            return False
        except OSError as fault:
            raise UnreachableError(f"the connection was lost: {fault.strerror or fault}") from None
        if not came:
            self._ended = True
            lib.pn_transport_close_tail(self.transport)
            return False
        at = 0
        while at < len(came):
            taken = lib.pn_transport_push(self.transport, came[at:] if at else came, len(came) - at)
            if taken <= 0:
                self._ended = True
                return False
            at += taken
        return len(came) == _BUFFER or isinstance(self.stream, ssl.SSLSocket)

    def write(self) -> bool:
        """Hands the socket what is pending; false if it takes no more now."""
        while (pending := lib.pn_transport_pending(self.transport)) > 0:
            size = lib.pn_transport_peek(self.transport, self._out, min(pending, _BUFFER))
            try:
                sent = self.stream.send(self._view[:size])
            except _AGAIN:
                return False
            except OSError as fault:
                raise UnreachableError(f"the connection was lost: {fault.strerror or fault}") from None
            lib.pn_transport_pop(self.transport, sent)
        return True

    def lost(self) -> AmqpError | None:
        """Why the connection is of no more use, if it is."""
        if not lib.pn_transport_closed(self.transport) and not self._ended:
            return None
        # Proton's own word on the bytes, not the broker's: half a frame and then nothing is a framing error.
        said = condition(lib.pn_transport_condition(self.transport))
        return UnreachableError(f"the connection was lost: {said}" if said else "the broker hung up")

    def close(self) -> None:
        """Closes the socket and frees Proton's objects; safe to call twice."""
        self.stream.close()
        if self.transport is not None:
            lib.pn_transport_unbind(self.transport)
            lib.pn_connection_release(self.connection)
            lib.pn_decref(self.connection)
            while lib.pn_collector_pop(self.collector):
                pass
            lib.pn_decref(self.transport)
            lib.pn_collector_free(self.collector)
            self.transport = None


def condition(found: Handle) -> RefusedError | None:
    """The peer's error as an exception, or None if it gave none."""
    if not found or not lib.pn_condition_is_set(found):
        return None
    return RefusedError(text(lib.pn_condition_get_name(found)), text(lib.pn_condition_get_description(found)))


def text(value: Handle) -> str:
    """A C string."""
    return ffi.string(value).decode("utf-8", "replace") if value else ""
