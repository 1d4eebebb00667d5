cimport cython

from broker cimport constants
from broker.engine.departure cimport Departure
from broker.engine.node cimport Node
from broker.engine.turn cimport Turn
from broker.flow.gate cimport Gate
from broker.queues.last_value cimport LastValueQueue
from broker.queues.queue cimport Entry, Queue

@cython.final
cdef class LastValues:
    cdef Turn _turn
    cdef Departure _departure

    @cython.locals(queue=LastValueQueue, gate=Gate)
    cpdef bint make_way(self, Node node, Entry older, long size) except -1
    @cython.locals(queue=LastValueQueue)
    cpdef object settle(self, Node node, Entry older)
    cpdef object put_out(self, Node node, Entry entry)
    @cython.locals(queue=LastValueQueue)
    cpdef bint yields(self, Node node, Entry entry) except -1
    @cython.locals(queue=LastValueQueue)
    cpdef bint is_late(self, Node node, object delayed) except -1
    cpdef object check(self, Node node, object settings)
    @cython.locals(queue=Queue, before=Queue)
    cpdef object follow(self, Node node, object settings)

cdef bint _is_empty(Queue queue) except -1
cdef str _key_of(Node node)
cdef long _size(Entry entry) except -1
