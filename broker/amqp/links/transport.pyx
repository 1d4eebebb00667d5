"""The bytes of one connection: from the socket to Proton through the guard of frames, and back.

Nothing here knows a link or a message. ``ConnectionIO`` handles the events that come of it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from broker.amqp.guard.frame_guard cimport FrameGuard
from broker.amqp.guard.outgoing_frames cimport OutgoingFrames
from broker.amqp.links.proton cimport *

from broker.amqp.guard.flow_reply import SessionFlowState
from broker.amqp.guard.stale_flows import StaleFlows

cdef extern from "sys/socket.h":
    ssize_t c_recv "recv"(int fd, void *buffer, size_t size, int flags) nogil
    ssize_t c_send "send"(int fd, const void *buffer, size_t size, int flags) nogil
    int MSG_NOSIGNAL

cdef enum:
    # Reads a connection may make in one turn, and events after which it makes no more. Few, so that
    # what was read is still in the processor's cache when it is dispatched, and nobody waits long:
    # with 16 reads of small messages, 4+4 connections ran at 0.7 of this.
    READS_PER_TURN = 16
    EVENTS_PER_TURN = 192
    # Frames other than plain transfers, about in microseconds, that are handled in one go.
    MOST_COST = 2000
    # Less is what an ordinary read brings.
    UNNOTICED = 200
    # Read at once of a frame that is larger than Proton's room for it.
    ASIDE_BYTES = 1 << 14


cdef class TransportIO:
    """One peer's socket and Proton transport.

    ``owner`` is the control plane of the connection, and ``to_flush`` the reactor's list of connections to write.
    """

    def __init__(self, int fd, size_t transport, list to_flush):
        self.fd = fd
        self.transport = <void *>transport
        self.to_flush = to_flush
        self.incoming = FrameGuard()
        self.outgoing = OutgoingFrames()
        self.book = SessionFlowState(self.incoming, self.outgoing)
        self.incoming.sent_on = self.book.sent_on
        self.incoming.most_cost = MOST_COST

    # --- what the connection does of it

    cpdef object events(self):
        """Handle every event Proton has collected."""
        raise NotImplementedError

    cdef object on_written(self):
        """Give Proton more to write: all it had is written."""

    cdef object on_writable(self):
        """Have links send again: the socket took nothing for a while, and now does."""

    # --- input

    def feed(self, bytes data):
        """Hand over bytes that were read before Proton was there (what followed the handshake)."""
        self.pass_bytes(self.incoming.take_kept() + data)

    cdef object pass_bytes(self, bytes data):
        """Give Proton bytes that stand elsewhere, or what it is to have instead."""
        cdef long taken = self.incoming.filter(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self.push([data[:taken]] if taken >= 0 else self.take_pieces())

    cdef object pass_tail(self, ssize_t size):
        """Give Proton what stands at its tail, or what it is to have instead."""
        cdef long taken = self.incoming.filter(<const uint8_t *>pn_transport_tail(self.transport), size)
        if taken < 0:
            self.push(self.take_pieces())
            return
        if self.incoming.rare:
            self.book.read_incoming()
        if taken > 0:
            pn_transport_process(self.transport, taken)
            self.events()
        if self.incoming.session_echoes:
            self.owner.answer_sessions()

    cdef object take_pieces(self):
        pieces = self.incoming.pieces
        self.incoming.pieces = []
        return pieces

    cdef object push(self, list pieces):
        """Give Proton bytes that stand elsewhere, and let it answer each piece before the next."""
        cdef ssize_t n, at, size
        if self.incoming.rare:
            self.book.read_incoming()
        for piece in pieces:
            if not isinstance(piece, bytes):
                self.owner.on_link_fault(*piece)
                continue
            at = 0
            size = len(piece)
            while at < size:
                n = pn_transport_push(self.transport, PyBytes_AS_STRING(piece) + at, size - at)
                self.events()
                if n <= 0:
                    break  # it hears no more
                at += n
            pn_transport_pending(self.transport)
        if self.incoming.session_echoes:
            self.owner.answer_sessions()
        if self.incoming.fault is not None:
            self.owner.close(*self.incoming.fault)

    cpdef bint pump_in(self) except -1:
        """Read and handle what has arrived; false once nothing more will come."""
        cdef bint going = self.read_in()
        self.unusual = self.incoming.cost > UNNOTICED or self.incoming.more or self.blocked
        return going

    cdef bint read_in(self) except -1:
        cdef ssize_t capacity, n, kept
        cdef int reads = 0
        cdef int aside
        self.mark_dirty()
        self.handled = 0
        self.incoming.cost = 0
        self.yielded = False
        while self.incoming.cost < MOST_COST:
            if reads >= READS_PER_TURN or self.handled >= EVENTS_PER_TURN:
                if not self.holds():
                    return True
                self.yielded = True
            capacity = pn_transport_capacity(self.transport)
            if capacity <= 0:
                return capacity == 0
            if self.incoming.kept is not None:
                if self.incoming.more or PyBytes_GET_SIZE(self.incoming.kept) >= capacity:
                    aside = self.pump_aside()
                    if aside <= 0 or self.incoming.more:
                        return aside != 0
                    reads += 1
                    continue
            kept = self.incoming.restore(<uint8_t *>pn_transport_tail(self.transport), capacity)
            capacity -= kept
            n = self.receive(pn_transport_tail(self.transport) + kept, capacity)
            if n < 0:
                return True
            if n == 0:
                self.end_input()
                return False
            self.incoming.kept = None
            if self.tap is not None:
                self.tap.came((<const uint8_t *>pn_transport_tail(self.transport))[kept:kept + n])
            self.pass_tail(kept + n)
            self.incoming.echo = False
            if self.incoming.fault is not None:
                return False
            if self.incoming.more:
                return pn_transport_capacity(self.transport) >= 0
            if n < capacity and self.is_drained():
                # Proton hears no more after a frame it can't decode; nothing else would tell us.
                return pn_transport_capacity(self.transport) >= 0
            reads += 1
        return True

    cdef ssize_t receive(self, char *into, ssize_t room) except -2:
        """Read from the peer: how many bytes, 0 at the end, -1 if there are none now."""
        cdef ssize_t n = c_recv(self.fd, into, room, 0)
        if n < 0:
            return -1 if errno == EAGAIN or errno == EINTR else 0
        return n

    cdef bint holds(self) except -1:
        """Whether something was read from the socket that ``receive`` has yet to give."""
        return False

    cdef bint is_drained(self):
        """Whether a read that brought less than there was room for was the last there is."""
        return True

    cdef int pump_aside(self) except -2:
        """Handle bytes that wait before the next read, or are more than Proton has room for.

        1 if more may be there, 0 at the end, -1 if nothing is for now.
        """
        cdef bytes data, came
        cdef ssize_t n
        cdef bint more = self.incoming.more
        self.incoming.more = False
        data = self.incoming.kept
        if not more:
            came = PyBytes_FromStringAndSize(NULL, ASIDE_BYTES)
            n = self.receive(PyBytes_AS_STRING(came), ASIDE_BYTES)
            if n < 0:
                return -1
            if n == 0:
                self.end_input()
                return 0
            if self.tap is not None:
                self.tap.came(came[:n])
            data += came[:n]
        self.incoming.kept = None
        self.pass_bytes(data)
        self.incoming.echo = False
        if self.incoming.fault is not None or pn_transport_capacity(self.transport) < 0:
            return 0
        return 1

    cdef object end_input(self):
        """Tell Proton that the peer sends no more."""
        pn_transport_close_tail(self.transport)
        self.events()

    # --- output

    cdef object mark_dirty(self):
        """Write this connection's output at the end of the turn."""
        if not self.flushing:
            self.flushing = True
            self.to_flush.append(self)

    def mark(self):
        """Call ``mark_dirty``, for Python."""
        self.mark_dirty()

    cpdef bint pump_out(self) except -1:
        """Write what Proton has; false when it has said its last. ``blocked``: the socket is full."""
        cdef ssize_t pending, n
        cdef bint was_blocked = self.blocked
        self.flushing = False
        self.blocked = False
        while True:
            if self.repaired_output is not None:
                n = self.write_repaired()
                if n <= 0:
                    return n == 0
            pending = self.output_bytes()
            if pending <= 0:
                return self.end_output(pending, was_blocked)
            if self.stale is not None:
                self.repaired_output = self.repaired(pending)
                continue
            n = c_send(self.fd, pn_transport_head(self.transport), pending, MSG_NOSIGNAL)
            if n < 0:
                return self.is_just_full()
            self.follow_output(<const uint8_t *>pn_transport_head(self.transport), n)
            pn_transport_pop(self.transport, n)

    cdef ssize_t output_bytes(self) except? -100:
        """How many bytes Proton has for the socket once it has said all it can; below 0 after its last."""
        cdef ssize_t pending = pn_transport_pending(self.transport)
        if pending == 0:
            self.on_written()
            self.events()
            pending = pn_transport_pending(self.transport)
        if pending <= 0 and self.stale is not None:
            self.after_repairs()
        return pending

    cdef bint end_output(self, ssize_t pending, bint was_blocked) except -1:
        """All is written: false when Proton has said its last."""
        if pending < 0:
            self.events()
        elif was_blocked:
            self.output_cost = 0
            self.input_stopped = False
            # The socket took it before epoll could say that it would: a link that was passed over
            # while it was full has no other call.
            self.on_writable()
        return pending == 0

    cdef object follow_output(self, const uint8_t *at, ssize_t size):
        """Read along in bytes that leave for the socket."""
        if self.tap is not None:
            self.tap.went(at[:size])
        self.outgoing.follow(at, size)
        if self.outgoing.rare:
            self.book.read_outgoing()

    cdef bint is_just_full(self) except -1:
        """A write has failed: whether the socket is full for now; if not, Proton is told that it is gone."""
        if errno == EAGAIN or errno == EINTR:
            self.blocked = True
            return True
        self.lose_socket()
        return False

    cdef object lose_socket(self):
        """Tell Proton that the socket is gone."""
        pn_transport_close_head(self.transport)
        self.end_input()

    cdef object repair_output(self):
        """The broker has detached a link its peer may still send on: Proton's flows are repaired on their way out,
        until the peer has confirmed.
        """
        if self.stale is None and not self.outgoing.lost:
            self.stale = StaleFlows(*self.outgoing.position())

    cdef bytes repaired(self, ssize_t pending):
        """Take what Proton has for the socket, as it is to be written."""
        cdef bytes data = self.stale.feed(pn_transport_head(self.transport)[:pending])
        pn_transport_pop(self.transport, pending)
        self.follow_output(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return data

    cdef int write_repaired(self) except -2:
        """1 once the socket has taken what was repaired, 0 while it is full, -1 if it is gone."""
        cdef ssize_t n
        while self.repaired_output:
            n = c_send(self.fd, PyBytes_AS_STRING(self.repaired_output), PyBytes_GET_SIZE(self.repaired_output),
                       MSG_NOSIGNAL)
            if n < 0:
                return 0 if self.is_just_full() else -1
            self.repaired_output = self.repaired_output[n:]
        self.repaired_output = None
        return 1

    cdef object after_repairs(self):
        """Proton has nothing more to say for now: once it knows no such link any more, nothing is repaired."""
        if not self.incoming.has_wronged() and self.stale.is_between_frames:
            self.stale = None

    def skip_output(self, bytes said):
        """Drop the beginning of the output, which the peer has already; false where that would be something else."""
        cdef ssize_t size = PyBytes_GET_SIZE(said)
        if pn_transport_pending(self.transport) < size:
            return False
        if memcmp(pn_transport_head(self.transport), PyBytes_AS_STRING(said), size) != 0:
            return False
        self.follow_output(<const uint8_t *>pn_transport_head(self.transport), size)
        pn_transport_pop(self.transport, size)
        return True

    def send_performative(self, int channel, bytes performative):
        """Write a frame of our own between Proton's."""
        cdef pn_bytes_t frame
        frame.size = len(performative)
        frame.start = PyBytes_AS_STRING(performative)
        pn_framing_send_amqp(self.transport, channel, frame)
        self.mark_dirty()

    # --- its life

    def tick(self, long now_ms):
        """Let Proton mind its idle timeouts; when to call again in ms, 0 for never."""
        cdef long following = pn_transport_tick(self.transport, now_ms)
        if pn_transport_pending(self.transport) != 0:
            self.mark_dirty()
        self.events()
        return following

    def closed(self):
        """True when both directions are done."""
        return bool(pn_transport_closed(self.transport))

    def has_output(self):
        """True while bytes wait for the socket."""
        return self.repaired_output is not None or pn_transport_pending(self.transport) > 0

    def abort(self):
        """No more input: Proton reports what that means for the connection."""
        pn_transport_close_tail(self.transport)
        self.mark_dirty()
