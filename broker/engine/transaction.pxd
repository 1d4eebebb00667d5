cimport cython

from broker cimport constants
from broker.engine.node cimport Node
from broker.queues.queue cimport Entry

@cython.final
@cython.freelist(64)
cdef class Post:
    cdef public Node node
    cdef public object origin, body
    cdef public bytes data
    cdef public long bits, size

@cython.final
@cython.freelist(64)
cdef class Retirement:
    cdef public Node node
    cdef public Entry entry
    cdef public long outcome, number
    cdef public bint failed
    cdef public object forbids, link
    cdef public bytes annotations

@cython.final
cdef class Transaction:
    cdef public bytes name
    cdef public object owner
    cdef public long began_ns, deadline_ns, most_bytes, nbytes
    cdef public dict parked
    cdef public set unread
    cdef public str state, fault
    cdef public list posts, retirements

    cpdef bint has_room(self, long size)
    cpdef object post(self, Node node, object origin, bytes data, long bits, long size, object body)
    cpdef Retirement retire(self, Node node, Entry entry, long outcome)
