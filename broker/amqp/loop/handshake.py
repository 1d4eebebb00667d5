"""TLS before anything else: handshakes of clients on the reactor's thread, bounded in time and told of.

A client's handshake is its own; what it says then is plain bytes, which SASL reads like anybody's.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from broker.errors import PeerError
from broker.security.tls import expires_s
from broker.security.tlsstream import TlsError, TlsStream

if TYPE_CHECKING:
    from broker.security.tls import ServerTls

# Handshakes are a millisecond's work each, and others wait meanwhile: so much in one turn, or one of them.
BUDGET_NS = 2_000_000
READ_BYTES = 4096
# How a client begins: TLS 1.0 to 1.3 (RFC 8446 §5.1), and AMQP in whichever of its protocols.
_CLIENT_HELLO = b"\x16\x03"
_AMQP = b"AMQP"


class TlsHandshake:
    """One client's TLS until Proton reads it: then ``stream`` does. ``user``: whom its certificate names."""

    def __init__(self, sock: socket.socket, tls: ServerTls, pace: HandshakeBudget) -> None:
        self.stream = TlsStream(sock.fileno(), tls.now.amqp, server_side=True)
        self.user = ""
        # When that holds no longer, in seconds since the epoch.
        self.until_s = 0.0
        self._sock = sock
        self._tls = tls
        self._pace = pace
        self._begun = False

    def shake(self, now_ns: int) -> bool:
        """Go on with the handshake; true once it is through.

        PeerError where it can't be gone on with, which has been counted; the text is for the log.
        """
        if self.stream.complete:
            return True
        if not self._pace.may_begin(now_ns):
            return False  # epoll says in the next turn that it waits
        begun_ns = time.monotonic_ns()
        try:
            self._refuse_plain()
            complete = self.stream.shake()
        except TlsError as fault:
            self._tls.counts.count_failed(fault.reason)
            raise PeerError("amqp:connection:framing-error", f"TLS handshake failed: {fault}") from None
        finally:
            self._pace.spent_ns += time.monotonic_ns() - begun_ns
        if complete:
            self._tls.counts.count_completed(self.stream.version or "")
            certificate = self.stream.certificate()
            self.user, self.until_s = self._tls.user(certificate), expires_s(certificate)
        return complete

    def read(self) -> bytes | None:
        """Some of what the client says; None if there is nothing yet, empty at its end.

        PeerError as above.
        """
        try:
            return self.stream.take(READ_BYTES)
        except TlsError as fault:
            raise PeerError("amqp:connection:framing-error", f"TLS: {fault}") from None

    def is_late(self) -> bool:
        """Its time is over: whether it got no further than this, which is counted."""
        if not self.stream.complete:
            self._tls.counts.count_failed("too slow")
        return not self.stream.complete

    def _refuse_plain(self) -> None:
        """OpenSSL would call it a wrong version number."""
        if self._begun:
            return
        self._begun = True
        try:
            first = self._sock.recv(len(_AMQP), socket.MSG_PEEK)
        except OSError:
            return
        if first == _AMQP:
            raise TlsError("no TLS", "the client speaks AMQP without TLS, and this port is for amqps://")


class HandshakeBudget:
    """The time that handshakes may take of a turn."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self._turn_ns = 0

    def may_begin(self, now_ns: int) -> bool:
        """Whether there is time for one more; ``now_ns`` is the turn's."""
        if now_ns != self._turn_ns:
            self._turn_ns, self.spent_ns = now_ns, 0
        return self.spent_ns < BUDGET_NS


def is_client_hello(data: bytes) -> bool:
    """Whether a client speaks TLS where nobody expects it."""
    return data.startswith(_CLIENT_HELLO)
