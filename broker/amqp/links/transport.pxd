from libc.stdint cimport uint8_t

from broker.amqp.guard.frame_guard cimport FrameGuard
from broker.amqp.guard.outgoing_frames cimport OutgoingFrames

cdef class TransportIO:
    cdef void *transport
    cdef public int fd
    cdef public object owner
    # Shown what is read and written; None unless an operator traces this connection.
    cdef public object tap
    cdef public list to_flush
    cdef public bint flushing, blocked
    cdef public FrameGuard incoming
    cdef public OutgoingFrames outgoing
    cdef public object book
    # How many events this read has brought.
    cdef public long handled
    # Repairs what Proton says of links that were detached; None while none is. And what it has passed on that
    # waits for the socket.
    cdef object stale
    cdef bytes repaired_output
    # Something was read that waits for the next turn, where epoll doesn't know of it.
    cdef public bint held
    # It has read as much as one may in a turn: what was read is handled, and nothing is fetched any more.
    cdef bint yielded
    # What its frames have cost while it read nothing; ``input_stopped`` where it is read no more until it does.
    cdef public long output_cost
    cdef public bint input_stopped
    # Whether the last read is to be looked at by whoever shares the loop out.
    cdef public bint unusual

    cpdef object events(self)
    cdef object on_written(self)
    cdef object on_writable(self)
    cdef object pass_bytes(self, bytes data)
    cdef object pass_tail(self, ssize_t size)
    cdef object take_pieces(self)
    cdef object push(self, list pieces)
    cpdef bint pump_in(self) except -1
    cdef bint read_in(self) except -1
    cdef ssize_t receive(self, char *into, ssize_t room) except -2
    cdef bint holds(self) except -1
    cdef bint is_drained(self)
    cdef int pump_aside(self) except -2
    cdef object end_input(self)
    cdef object mark_dirty(self)
    cpdef bint pump_out(self) except -1
    cdef ssize_t output_bytes(self) except? -100
    cdef bint end_output(self, ssize_t pending, bint was_blocked) except -1
    cdef object follow_output(self, const uint8_t *at, ssize_t size)
    cdef bint is_just_full(self) except -1
    cdef object lose_socket(self)
    cdef object repair_output(self)
    cdef bytes repaired(self, ssize_t pending)
    cdef int write_repaired(self) except -2
    cdef object after_repairs(self)
