from libc.stdint cimport uint64_t

from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.link cimport IncomingLink, OutgoingLink

cdef class NeighbourIO(ConnectionIO):
    pass

cdef class ForeignProducer(IncomingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef NeighbourSender other
    cdef public bint dead
    # What has come is passed on, however much waits to be written.
    cdef bint hurries
    cdef public object failed

    cdef object pass_on(self)
    cdef bint start(self, void *delivery) except -1
    cdef object renew(self)

cdef class NeighbourSender(OutgoingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef ForeignProducer other
    cdef bint waits

cdef class ForeignConsumer(OutgoingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef NeighbourReceiver other
    cdef bint waits
    cdef public bint dead, draining
    cdef public int channel
    cdef public str name
    cdef public long delivered, drained
    cdef public object failed

    cdef object ask(self)
    cdef object level(self)
    cdef object answer_drain(self)

cdef class NeighbourReceiver(IncomingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef ForeignConsumer other

    cdef object pass_on(self)
    cdef bint start(self, void *delivery) except -1

cdef class NeighbourRelay(OutgoingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef unsigned long number
    # By number, whom to tell the outcome.
    cdef dict told

cdef object copy_state(void *source, void *target)
cdef object forget_deliveries(void *link)
