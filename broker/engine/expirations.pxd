cimport cython

from broker cimport constants
from broker.engine.node cimport Node
from broker.engine.turn cimport Turn
from broker.queues.queue cimport Entry

@cython.final
cdef class Expirations:
    cdef Turn _turn
    cdef object _nodes

    @cython.locals(expires_ms=long)
    cpdef long set_deadline(self, Node node, Entry entry, bytes data) except -1
    @cython.locals(now_ms=long, ttl_ms=long, expires_ms=long, absolute_ms=long)
    cpdef long expiry_ms(self, Node node, bytes data) except -1
    cpdef object set_deadline_ms(self, Node node, Entry entry, long expires_ms)
    cpdef object watch(self, Node node, Entry entry)
    cpdef bint is_expired(self, Entry entry) except -1
    cpdef object left(self, Node node)
    cpdef bint has_any(self) except -1
    @cython.locals(entry=Entry)
    cpdef list due(self, Node node)
    @cython.locals(node=Node, earliest=long, due=long)
    cpdef long next_deadline(self) except -1
