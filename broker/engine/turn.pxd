cimport cython

from broker.engine.node cimport Node

@cython.final
cdef class Turn:
    cdef public long now_ns
    cdef public list dirty

    cpdef object mark_dirty(self, Node node)
    cpdef list take_dirty(self)
