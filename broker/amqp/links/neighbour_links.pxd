from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.link cimport IncomingLink, OutgoingLink
from broker.engine.transaction cimport Transaction

cdef class NeighbourLink(OutgoingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef unsigned long number
    # By number, whom to tell the outcome.
    cdef dict told

cdef class NeighbourRelay(NeighbourLink):
    pass

cdef class NeighbourCoordinator(NeighbourLink):
    cdef public int own, cell
    cdef public bint is_ready
    cdef object on_ready

    cpdef TransactionPart part_of(self, Transaction transaction)

cdef class TransactionPart:
    cdef NeighbourCoordinator coordinator
    cdef Transaction transaction
    # The links on which a client's messages of it came; None while none did.
    cdef set links

    cdef object add_link(self, PassingLink link)

cdef class NeighbourReplies(IncomingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef object deliver
    # Of the answer that comes.
    cdef list pieces

cdef class PassingLink(IncomingLink):
    cdef object forget_transaction(self, Transaction transaction)
    cdef bint has_unpassed(self, Transaction transaction) except -1
