cimport cython

@cython.final
cdef class HotNumbers:
    cdef public bint by_turn, single_active, always_enforced
    cdef public long pending_limit, overflow, when_full
