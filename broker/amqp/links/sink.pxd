from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.producer cimport ProducerLink
from broker.engine.engine cimport Engine

cdef class SinkLink(ProducerLink):
    cdef object sink
