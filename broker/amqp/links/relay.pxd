from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.producer cimport ProducerLink
from broker.engine.engine cimport Engine
from broker.engine.node cimport Node
from broker.flow.producer_credit cimport ProducerCredit

cdef class RelayLink(ProducerLink):
    cdef object resolve
    # By address: the node and the link's account there.
    cdef dict accounts
    # Passes a message on: it takes a cell, the message, whom to tell the outcome, and the transaction that it is in.
    # None where there is one cell.
    cdef public object foreign

    cdef object refuse_size(self, void *delivery, Node node, ProducerCredit account, bint settled)
    cdef bint pass_on(self, void *delivery, object fault, bytes data, long bits, bint settled) except -1
    cdef object refuse_unknown(self, void *delivery, bint settled)
    cdef object open_account(self, void *delivery, str address, bytes data, long bits, bint settled)
    cdef object forget_idle(self)
