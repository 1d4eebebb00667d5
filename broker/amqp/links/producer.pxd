cimport cython
from libc.stdint cimport uint64_t

from broker.amqp.links.assembly cimport AssemblingLink
from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.pending cimport AwaitingSync, PendingDelivery
from broker.engine.engine cimport Engine
from broker.engine.node cimport Node
from broker.engine.transaction cimport Transaction
from broker.flow.producer_credit cimport ProducerCredit

cdef class ProducerLink(AssemblingLink):
    cdef public Node node
    cdef public ProducerCredit account
    cdef public bint presettled, second
    cdef public long open_credit, kept, received
    # The outcome of a message that isn't taken; 0 where the source offers none for it.
    cdef public uint64_t refusal
    # Of the session; and how many messages had come when the peer last said how many it has.
    cdef public int channel
    cdef long offered_at
    # How many deliveries wait for the peer to settle them, where it settles second.
    cdef public long unconfirmed, most_unconfirmed
    cdef AwaitingSync unwritten
    # Those whose deliveries point to them: they live until the delivery has its outcome, whoever forgets them.
    cdef set holding
    # Transactions whose end waits for messages that stand behind a large one here; None most of the time.
    cdef set awaited_by

    cdef bint has_unread(self, Transaction transaction) except -1

    @cython.final
    cdef object renew_open(self)
    @cython.final
    cdef object lift_credit(self)
    cdef object replace_credit(self)
    @cython.final
    cdef object post(self, void *delivery, Node node, ProducerCredit account, bytes data, long bits, bint settled)
    @cython.final
    cdef object refuse_post(self, void *delivery, Transaction transaction, ProducerCredit account, long size,
                            bint settled)
    @cython.final
    cdef object settle_in(self, void *delivery, Transaction transaction)
    @cython.final
    cdef object admit_post(self, PendingDelivery held)
    @cython.final
    cdef object end_post(self, void *delivery, Transaction transaction, long code)
    @cython.final
    cdef bytes delayed(self, void *delivery, bytes data, long size, bint settled)
    cdef object take(self, void *delivery, bytes data, long bits, bint settled)
    @cython.final
    cdef object apply_result(self, void *delivery, long code, bytes data, long bits, bint settled,
                             Node node, ProducerCredit account)
    @cython.final
    cdef object park(self, void *delivery, bytes data, bint settled, PendingDelivery held)
    @cython.final
    cdef object hold(self, PendingDelivery held, void *delivery)
    @cython.final
    cdef object let_go(self, PendingDelivery held)
    @cython.final
    cdef object release_held(self, PendingDelivery held, long code)
    cdef object outcome(self, void *delivery, long code)
    @cython.final
    cdef object reject(self, void *delivery, bytes name, bytes text)
    @cython.final
    cdef bint settle_with(self, void *delivery, uint64_t state) except -1
    @cython.final
    cdef bint await_settlement(self) except -1
    cpdef object stored(self, long group)
    cdef object decline(self, void *delivery, long size, bint settled, bytes condition, bytes text)
    cdef object fail_for(self, void *delivery, str condition, str text)
    cdef object close_account(self, Node node, ProducerCredit account)
