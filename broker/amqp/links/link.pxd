from broker.flow.producer_credit cimport Port
from broker.queues.dispatch cimport Consumer

cdef class IncomingLink(Port):
    cdef object on_delivery(self, void *delivery)
    cdef object on_flow(self)

cdef class OutgoingLink(Consumer):
    cdef object on_updated(self, void *delivery)
    cdef object on_flow(self)
    cdef object on_writable(self)
    cdef object on_window(self)
    cdef object stream(self)
    cdef long sample(self, long now_ns, double seconds) except -1
    cdef bint has_unsent(self, void *session) except -1
