"""One connection's TLS between a socket's bytes and ours: Python's ``ssl`` over memory, the socket in C.

Nothing here waits; whoever owns the socket says when to read and write. Two laws:

1. One call handles no more of the peer's bytes than one read from the socket brings. (``SSL_read`` on the
   socket itself goes on for as long as records arrive that carry nothing.)
2. Bytes that carry nothing (TLS 1.3's KeyUpdate, empty or padded records, asking for a renegotiation) are a
   budget: so many at once, and so many a second. A record that carries something pays for its own frame.
"""

import ssl
import time

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t

from broker.errors import SluiceError

cdef extern from "sys/socket.h":
    ssize_t c_recv "recv"(int fd, void *buffer, size_t size, int flags) nogil
    ssize_t c_send "send"(int fd, const void *buffer, size_t size, int flags) nogil
    int MSG_NOSIGNAL
    int MSG_DONTWAIT

cdef enum:
    # Of one read from the socket: two full records. Their ciphertext is on the stack, then in the BIO.
    READ_BYTES = 1 << 15
    # RFC 8446 §5.2: no record is longer.
    LONGEST_RECORD = 16384 + 2048
    # What a record that carries something may take beside it: 22 bytes at least, 29 with TLS 1.2.
    FRAME_BYTES = 64
    # Bytes that may carry nothing: at once, and a millisecond. A KeyUpdate has 27: 600 of them a second.
    SPARE_BYTES = 1 << 16
    SPARE_BYTES_PER_MS = 16
    # A handshake's, from the peer: OpenSSL takes 100 KB of certificates.
    HANDSHAKE_BYTES = 1 << 17


class TlsError(SluiceError):
    """The peer's TLS can't be gone on with; ``reason`` is a word or two of OpenSSL's, or ours."""

    def __init__(self, reason, text):
        super().__init__(text)
        self.reason = reason


cdef class TlsStream:
    """One side of one connection. Non-blocking; ``context`` is an ``ssl.SSLContext``.

    ``complete``: the handshake is through. ``broken``: an error has ended it, nothing can be said any more.
    """

    def __init__(self, int fd, context, *, bint server_side, server_hostname=None):
        self.fd = fd
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.ssl = context.wrap_bio(
            self.incoming, self.outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self.ssl_read = self.ssl.read
        self.ssl_write = self.ssl.write
        self.spare = SPARE_BYTES
        self.server_side = server_side

    # --- the handshake

    def shake(self):
        """Go on with the handshake by one read from the socket; true once it is through.

        TlsError if it fails; what is to be said about that has been sent.
        """
        cdef ssize_t got = self.fetch()
        if got > 0:
            self.shaken += got
            if self.shaken > HANDSHAKE_BYTES:
                self.broken = True
                raise TlsError("too long", "a TLS handshake of too many bytes")
        return self.step(got)

    cdef bint step(self, ssize_t got) except -1:
        try:
            self.ssl.do_handshake()
            self.complete = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as fault:
            self.broken = True
            self.flush()
            raise TlsError(_word(fault), _said(fault)) from None
        except OSError as fault:
            self.broken = True
            raise TlsError("lost", str(fault)) from None
        if self.flush() < 0 or (got == 0 and not self.complete):
            self.broken = True
            raise TlsError("ended", "the peer ended the connection during the TLS handshake")
        return self.complete

    # --- reading

    cdef ssize_t fetch(self) except -2:
        """Read once from the socket: how many bytes, 0 at its end, -1 if there are none."""
        cdef char scratch[READ_BYTES]
        cdef ssize_t got = c_recv(self.fd, scratch, READ_BYTES, MSG_DONTWAIT)
        if got < 0:
            return -1 if errno == EAGAIN or errno == EINTR else 0
        if got > 0:
            self.follow(<uint8_t *>scratch, got)
            self.incoming.write(PyMemoryView_FromMemory(scratch, got, PyBUF_READ))
        self.drained = got < READ_BYTES
        return got

    cdef void follow(self, const uint8_t *at, ssize_t size) noexcept:
        """Where records end: so that OpenSSL is not asked for one that is not all there."""
        cdef ssize_t taken
        while size > 0:
            if self.body > 0:
                taken = self.body if self.body < size else size
                self.body -= taken
                self.partial = self.partial + taken if self.body > 0 else 0
            else:
                taken = 1
                self.length = (self.length << 8 | at[0]) & 0xFFFF
                self.head += 1
                self.partial += 1
                if self.head == 5:
                    self.head = 0
                    self.body = self.length
                    # One that is too long is OpenSSL's to refuse, now.
                    if self.body == 0 or self.body > LONGEST_RECORD:
                        self.partial = 0
            at += taken
            size -= taken

    cdef bint ready(self) except -1:
        """Whether a whole record, or a part of one that was opened, waits for ``open``."""
        return self.more or <long>self.incoming.pending > self.partial

    cdef ssize_t open(self, char *into, ssize_t room) except -2:
        """What the next record carries, or as much as there is room for; 0 at the end, -1 for nothing yet.

        TlsError if it can't be opened, or too much has come that carried nothing.
        """
        cdef long before = self.incoming.pending
        cdef ssize_t n
        if room <= 0:
            return -1
        try:
            n = self.ssl_read(room, PyMemoryView_FromMemory(into, room, PyBUF_WRITE))
        except ssl.SSLWantReadError:
            n = -1
        except ssl.SSLEOFError:
            n = 0
        except ssl.SSLError as fault:
            self.broken = True
            self.flush()
            raise TlsError(_word(fault), _said(fault)) from None
        self.more = n == room and self.ssl.pending() > 0
        self.spare -= before - <long>self.incoming.pending
        if n > 0:
            self.spare += n + FRAME_BYTES
            if self.spare > SPARE_BYTES:
                self.spare = SPARE_BYTES
        else:
            if self.spare < 0:
                self.refill()
            if <long>self.outgoing.pending > SPARE_BYTES:
                # What is answered to them, and isn't read.
                self.broken = True
                raise TlsError("flood", "too many TLS records that carry nothing")
        return n

    cdef object refill(self):
        cdef long now_ms = time.monotonic_ns() // 1000000
        self.spare += min((now_ms - self.refilled_ms) * SPARE_BYTES_PER_MS, SPARE_BYTES)
        self.refilled_ms = now_ms
        if self.spare < 0:
            self.broken = True
            raise TlsError("flood", "too many TLS records that carry nothing")

    def take(self, ssize_t most):
        """Some bytes that came; empty at the end, None if there are none now. For what is read in Python."""
        cdef char scratch[4096]
        cdef ssize_t n, got
        while True:
            if self.ready():
                n = self.open(scratch, min(most, 4096))
                if n >= 0:
                    return scratch[:n]
                continue
            got = self.fetch()
            if got < 0:
                return None
            if got == 0:
                return b""

    # --- writing

    cdef object seal(self, const char *start, ssize_t size):
        """Encrypt; ``flush`` sends it. What can't be said any more is dropped."""
        if self.broken:
            return
        try:
            self.ssl_write(PyMemoryView_FromMemory(<char *>start, size, PyBUF_READ))
        except ssl.SSLError:
            self.broken = True

    cdef int flush(self) except -2:
        """Send what is encrypted: 1 when all is gone, 0 if the socket is full, -1 if it is lost."""
        cdef ssize_t n, left
        while True:
            if self.unsent is None:
                if not self.outgoing.pending:
                    return 1
                self.unsent = self.outgoing.read()
                self.gone = 0
            left = PyBytes_GET_SIZE(self.unsent) - self.gone
            n = c_send(self.fd, PyBytes_AS_STRING(self.unsent) + self.gone, left, MSG_NOSIGNAL | MSG_DONTWAIT)
            if n < 0:
                if errno == EINTR:
                    continue
                return 0 if errno == EAGAIN else -1
            self.gone += n
            if n == left:
                self.unsent = None

    def say(self, bytes data):
        """Send some bytes at once; whether the socket took them all. For what is written in Python."""
        self.seal(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return self.flush() == 1

    def bid_farewell(self):
        """Say that nothing follows (close_notify), if the socket takes it."""
        if self.complete and not self.broken:
            try:
                self.ssl.unwrap()
            except OSError:
                pass  # the peer has yet to say the same; ssl.SSLError is an OSError
            self.broken = True
        self.flush()

    # --- what it is

    @property
    def version(self):
        """``TLSv1.3``; None before the handshake is through."""
        return self.ssl.version()

    @property
    def cipher(self):
        """The cipher's name."""
        found = self.ssl.cipher()
        return "" if found is None else found[0]

    def certificate(self):
        """The peer's certificate as ``ssl`` shows one that was verified; None if it gave none."""
        return self.ssl.getpeercert() or None


cdef str _word(object fault):
    """OpenSSL's word for it, as ``certificate expired``."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return fault.verify_message
    return (fault.reason or "protocol error").lower().replace("_", " ")


cdef str _said(object fault):
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"the certificate was not accepted: {fault.verify_message}"
    return _word(fault)
