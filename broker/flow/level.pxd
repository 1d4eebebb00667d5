cimport cython
from broker.flow.gate cimport Gate
from broker.flow.producer_credit cimport ProducerCredit

@cython.final
cdef class Level:
    cdef readonly Gate budget
    cdef readonly long capacity, share, flow, most, strangers, spare

    @cython.locals(account=ProducerCredit, demands=list, served=list, capacity=long, past=long, unit=long, flow=long,
                   demand=long)
    cdef object _weigh(self, list accounts, long room, long whole, long now_ns)
    cpdef long unit(self, ProducerCredit account) except -1
    @cython.locals(unit=long, part=long, keep=long)
    cpdef long spared(self, ProducerCredit account) except -1
    @cython.locals(unit=long, behind=long)
    cpdef long of(self, ProducerCredit account) except -1
