from broker.engine.engine cimport Engine
from broker.engine.node cimport Node
from broker.engine.transaction cimport Transaction
from broker.flow.producer_credit cimport Port, ProducerCredit

cdef class PendingDelivery:
    cdef void *delivery
    cdef bytes data
    cdef bint settled
    cdef long bits
    cdef Node node
    cdef ProducerCredit account
    cdef object body
    # That it was posted in; None for none.
    cdef Transaction transaction
    # Of a discharge: that it asks for a rollback.
    cdef bint fails

cdef PendingDelivery pending_delivery(Node node, ProducerCredit account, long bits)

cdef class AwaitingSync:
    cdef void **deliveries
    cdef long *groups
    cdef long first, end, capacity
    # The group that the link is to be told of next.
    cdef long group

    cdef object wait(self, Engine engine, object link, void *delivery)
    cdef object push(self, void *delivery, long group)
    cdef object compact(self)
    cdef void *pop(self, long group)
    cdef object discard(self, void *delivery)
    cdef object clear(self)
    cdef object mark(self)
