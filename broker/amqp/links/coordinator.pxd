from broker.amqp.links.connection cimport ConnectionIO
from broker.amqp.links.pending cimport PendingDelivery
from broker.amqp.links.producer cimport ProducerLink
from broker.engine.engine cimport Engine
from broker.engine.transaction cimport Transaction

cdef class PassedDischarge:
    cdef PendingDelivery held
    cdef bint fail, settled
    cdef long left
    cdef bytes condition, text

cdef class CoordinatorLink(ProducerLink):
    cdef object limits
    # Its transactions that are open, and discharges that wait for messages without room, by transaction.
    cdef public set declared
    cdef dict discharging
    # Discharges that other cells were told and have yet to answer, by transaction.
    cdef dict passed
    # The ids of those whose time was over before they were discharged.
    cdef object late

    cdef object declare(self, void *delivery, object request, bint settled)
    cdef object declare_part(self, void *delivery, bytes name)
    cdef object begin(self, void *delivery, bytes name)
    cdef PendingDelivery keep(self, void *delivery, Transaction transaction, bint settled)
    cdef object await_passing(self, Transaction transaction)
    cdef object discharge_parts(self, Transaction transaction, PassedDischarge passed)
    cdef object end_here(self, Transaction transaction)
    cdef object answer_passed(self, PassedDischarge passed)
    cdef object roll_back_parts(self, Transaction transaction)
    cdef object discharge(self, void *delivery, object request, bint settled)
    cdef bint must_wait(self, Transaction transaction, bint fails) except -1
    cdef object end(self, Transaction transaction, bint fail)
    cdef object forget(self, Transaction transaction)
    cdef object answer(self, void *delivery, long code, Transaction transaction)
    cdef object refuse_request(self, void *delivery, bytes condition, str text)
