cimport cython

from broker cimport codes

@cython.final
cdef class Window:
    cdef public long limit, reopen, unsettled, shut_count
    cdef public bint shut
    cdef public Window shared

    cpdef object configure(self, long limit, long threshold)
    @cython.locals(room=long)
    cpdef long room(self)
    cpdef void sent(self)
    cpdef void settled(self)
