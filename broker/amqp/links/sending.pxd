from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.link cimport OutgoingLink

cdef class SendingLink(OutgoingLink):
    cdef void *link
    cdef public ConnectionIO connection
    cdef public str name
    cdef public bint dead, draining
    cdef public long delivered, drained
    cdef public int channel
