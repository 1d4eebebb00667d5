"""The message path of a connection with TLS: between socket and Proton stands a TlsStream.

Records are opened straight into Proton's buffer and sealed straight from it. Whatever one read from the
socket brought is handled before the turn ends, but where that costs too much for one: then ``held`` says so.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from broker.amqp.links.proton cimport *
from broker.amqp.links.connection cimport ConnectionIO
from broker.security.tlsstream cimport TlsStream

from broker.security.tlsstream import TlsError

cdef enum:
    # Sealed and then written at once.
    BATCH_BYTES = 1 << 16
    # A record that carries less than any frame but an empty one: opening it takes a microsecond of its own.
    SMALL_RECORD = 24


cdef class SecureConnection(ConnectionIO):
    """One peer's socket, TLS and Proton engine; ``tls`` has completed its handshake."""

    def __init__(self, TlsStream tls, *args):
        super().__init__(*args)
        self.tls = tls

    cpdef bint pump_in(self) except -1:
        """Read and handle what has arrived; false once nothing more will come."""
        cdef bint alive
        self.held = False
        try:
            alive = ConnectionIO.pump_in(self)
            if alive and self.holds():
                self.held = self.unusual = True
        except TlsError as fault:
            self.owner.close("amqp:connection:framing-error", f"TLS: {fault}")
            self.end_input()
            return False
        return alive

    cdef ssize_t receive(self, char *into, ssize_t room) except -2:
        """What the next records carry; the socket is read once for it at most."""
        cdef TlsStream tls = self.tls
        cdef ssize_t n
        cdef bint fetched = False
        while True:
            while tls.ready():
                n = tls.open(into, room)
                if n >= 0:
                    self.incoming.cost += n < SMALL_RECORD
                    return n
            # Records that carry nothing may have been all it held: that is no reason to read on.
            if fetched or self.yielded:
                return -1
            n = tls.fetch()
            if n <= 0:
                return n
            fetched = True

    cdef bint holds(self) except -1:
        return self.tls.ready()

    cdef bint is_drained(self):
        return self.tls.drained and not self.tls.ready()

    cpdef bint pump_out(self) except -1:
        """Write what Proton has; false when it has said its last. ``blocked``: the socket is full."""
        cdef TlsStream tls = self.tls
        cdef ssize_t pending = 0, sealed
        cdef bytes data
        cdef int state
        cdef bint was_blocked = self.blocked
        self.flushing = False
        self.blocked = False
        while True:
            # What was sealed before goes first: while the socket is full nothing more is.
            state = tls.flush()
            if state == 0:
                self.blocked = True
                return True
            if state < 0:
                self.lose_socket()
                return False
            sealed = 0
            while sealed < BATCH_BYTES:
                pending = self.output_bytes()
                if pending <= 0:
                    break
                if self.stale is not None:
                    data = self.repaired(pending)
                    tls.seal(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
                    sealed += PyBytes_GET_SIZE(data)
                    continue
                self.follow_output(<const uint8_t *>pn_transport_head(self.transport), pending)
                tls.seal(pn_transport_head(self.transport), pending)
                pn_transport_pop(self.transport, pending)
                sealed += pending
            if sealed == 0:
                return self.end_output(pending, was_blocked)
