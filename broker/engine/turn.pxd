cimport cython

from broker.engine.node cimport Node

@cython.final
cdef class Turn:
    cdef public long now_ns, epoch_ns, clock_set_ns
    cdef public list dirty, unfinished

    cpdef long wall_ms(self) except -1
    cpdef long stamp_ms(self) except -1
    cpdef object mark_dirty(self, Node node)
    @cython.locals(each=Node, owner=Node)
    cpdef object wake(self, Node node)
    cpdef object mark_dirty_later(self, Node node)
    cpdef list take_dirty(self)
