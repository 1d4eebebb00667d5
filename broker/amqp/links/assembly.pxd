cimport cython
from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.link cimport IncomingLink
from broker.engine.engine cimport Engine

cdef class AssemblingLink(IncomingLink):
    cdef void *link
    cdef public ConnectionIO connection
    cdef public Engine engine
    cdef public str id, name
    cdef public bint dead
    cdef public long max_size, partial_bytes
    cdef list chunks
    # A large message on its way to a file, its delivery, and how much of one memory holds before.
    cdef object inflow
    cdef void *current
    cdef public long most_held
    cdef long look_again

    cdef object on_message(self, void *delivery, bytes data, long bits, long size)
    cdef object on_aborted(self)
    cdef object peer_settled(self, void *delivery)
    cdef bint may_begin(self) except -1
    cdef object oversent(self)
    cpdef object fail(self, str condition, str text)
    @cython.final
    cdef object on_piece(self, void *delivery, bytes data)
    cdef object gather(self, bytes data)
    @cython.final
    cdef bytes received_bytes(self, size_t size)
    @cython.final
    cdef object too_large(self, void *delivery)
    cdef bint is_too_much(self)
    @cython.final
    cdef object forget_pieces(self)
    cdef object aborted(self, void *delivery)
    cdef object on_read(self, bint lost)
    cdef object go_large(self, void *delivery)
    cdef object on_large_piece(self, void *delivery)
    cdef bint is_unread(self, void *delivery)
    cdef object feed(self, bytes data)
    cdef object end_large(self)
    cdef object go_on(self)
    cdef object drop_inflow(self)
