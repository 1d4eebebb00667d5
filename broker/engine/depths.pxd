cimport cython

from broker cimport constants
from broker.engine.changes cimport Changes
from broker.engine.node cimport Node, memory_of
from broker.engine.turn cimport Turn
from broker.flow.gate cimport Gate

@cython.final
cdef class Depths:
    cdef Turn _turn
    cdef Changes _changes
    cdef public Gate memory, disk, temp

    cpdef object enter(self, Node node, long size)
    cpdef object leave(self, Node node, long size)
    cpdef object count_kept(self, Node node, long msgs, long nbytes)
    cpdef object count_disk(self, long msgs, long nbytes)
    cpdef object release(self, Node node)
    @cython.locals(gate=Gate)
    cpdef object look_at_budgets(self)
