cimport cython

from broker.engine.depths cimport Depths
from broker.engine.durability cimport Durability
from broker.engine.expirations cimport Expirations
from broker.engine.node cimport Node
from broker.engine.turn cimport Turn
from broker.flow.allocator cimport CreditAllocator
from broker.queues.queue cimport Entry

@cython.final
cdef class Departure:
    cdef Turn _turn
    cdef Depths _depths
    cdef Durability _durability
    cdef object _bodies
    cdef Expirations _expirations

    @cython.locals(size=long)
    cpdef object remove(self, Node node, Entry entry)
    @cython.locals(size=long)
    cpdef object drop(self, Node node, Entry entry)
    cpdef object replaced(self, Node node, Entry entry)
    cpdef object forget_replaced(self, Node node, Entry entry)
    cdef object _strip(self, Node node, Entry entry)
    cpdef object leave(self, Node node, long size)
    @cython.locals(allocator=CreditAllocator)
    cdef object _leave(self, Node node, long size)
    @cython.locals(allocator=CreditAllocator, topic=Node)
    cdef object _wake_topics(self, Node node)
    @cython.locals(owners=list, owner=Node, topic=Node, first=long, allocator=CreditAllocator)
    cdef object _wake_in_turn(self, Node node)
