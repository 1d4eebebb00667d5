from libc.stdint cimport uint64_t

from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.neighbour_links cimport NeighbourCoordinator, PassingLink
from broker.amqp.links.sending cimport SendingLink
from broker.engine.transaction cimport Transaction

cdef class NeighbourIO(ConnectionIO):
    cdef public NeighbourCoordinator coordinator

cdef class IncomingHalf(PassingLink):
    cdef ConnectionIO connection
    cdef void *link
    cdef OutgoingHalf other
    cdef public bint dead
    # What has come is passed on, however much waits to be written.
    cdef bint hurries

    cdef bint is_unread(self, void *delivery) except -1
    cdef object balance(self)
    cdef object on_passed(self)
    cdef object on_held_up(self)
    cdef object on_aborted(self)
    cdef object look_again(self)
    cdef object take_in(self, void *delivery)
    cdef object pass_on(self)
    cdef void *begun(self, void *delivery) except? NULL

cdef class OutgoingHalf(SendingLink):
    cdef IncomingHalf other
    cdef bint waits
    # How many messages have been begun on it, by which they are tagged.
    cdef uint64_t begun_msgs

    cdef bint is_full(self) except -1

cdef class ForeignProducer(IncomingHalf):
    # Of each open transaction that it has messages of, which of those that Proton was given is the last; None while
    # there was none.
    cdef dict transacted
    # Transactions whose discharge waits for messages of theirs to be written; None most of the time.
    cdef set awaited_by
    # Called once messages of a link that its client has detached wait for credit; None most of the time.
    cdef object gives_up

    cdef bint is_unwritten(self, Transaction transaction) except -1
    cdef object lose_transacted(self)

cdef class NeighbourSender(OutgoingHalf):
    pass

cdef class ForeignConsumer(OutgoingHalf):
    cdef object ask(self)
    cdef object level(self)
    cdef object answer_drain(self)

cdef class NeighbourReceiver(IncomingHalf):
    pass

cdef object copy_state(void *source, void *target)
cdef object forget_deliveries(void *link)
cdef object part(void *delivery, void *passed)
