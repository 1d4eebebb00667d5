cimport cython
from broker.flow.gate cimport Gate

@cython.final
cdef class ConnectionBudget:
    cdef public Gate gate
    cdef public list accounts, budget_queue
    cdef public long asking

    cpdef object hold(self, long msgs, long size)
    @cython.locals(room=long)
    cpdef long share(self, long size) except -1
