cimport cython

from broker.engine.node cimport Node
from broker.engine.turn cimport Turn
from broker.flow.gate cimport Gate

@cython.final
cdef class Changes:
    cdef Turn _turn
    cdef list _nodes
    cdef public object on_gate, watch, emit

    @cython.locals(gate=Gate, owner=Node)
    cpdef object gate_changed(self, Node node)
    cpdef object links_changed(self, Node node)
    @cython.locals(node=Node)
    cpdef list take_nodes(self)
    cpdef object budget_changed(self, Gate gate)
    @cython.locals(owner=Node)
    cpdef object overpromise(self, Node node)
