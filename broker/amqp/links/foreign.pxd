from libc.stdint cimport uint64_t

from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.link cimport IncomingLink, OutgoingLink
from broker.amqp.links.sending cimport SendingLink

cdef class NeighbourIO(ConnectionIO):
    pass

cdef class IncomingHalf(IncomingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef OutgoingHalf other
    cdef public bint dead
    # What has come is passed on, however much waits to be written.
    cdef bint hurries

    cdef bint is_unread(self, void *delivery) except -1
    cdef object balance(self)
    cdef object on_passed(self)
    cdef bint may_pass(self, void *delivery) except -1
    cdef object pass_on(self)
    cdef void *begun(self, void *delivery) except? NULL

cdef class OutgoingHalf(SendingLink):
    cdef IncomingHalf other
    cdef bint waits

    cdef bint is_full(self) except -1

cdef class ForeignProducer(IncomingHalf):
    cdef public object failed

cdef class NeighbourSender(OutgoingHalf):
    pass

cdef class ForeignConsumer(OutgoingHalf):
    cdef public object failed

    cdef object ask(self)
    cdef object level(self)
    cdef object answer_drain(self)

cdef class NeighbourReceiver(IncomingHalf):
    pass

cdef class NeighbourRelay(OutgoingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef unsigned long number
    # By number, whom to tell the outcome.
    cdef dict told

cdef object copy_state(void *source, void *target)
cdef object forget_deliveries(void *link)
cdef object part(void *delivery, void *passed)
