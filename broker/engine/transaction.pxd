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
cdef class TransactionLimits:
    cdef public long most_per_user, most_bytes_per_user

@cython.final
cdef class UserTransactions:
    cdef public str user
    cdef public TransactionLimits limits
    cdef public long count, nbytes

    cpdef bint has_room(self, long nbytes)

@cython.final
cdef class Transaction:
    cdef public bytes name
    cdef public object owner
    cdef public long began_ns, deadline_ns, most_bytes, nbytes, posted_bytes
    cdef public UserTransactions user
    cdef public set nodes
    cdef Node _last_node
    cdef public dict parked
    cdef dict _parked_bytes
    cdef public set unread
    cdef public list parts
    cdef public str state, fault
    cdef public list posts, retirements

    cdef object _add(self, long nbytes)
    cdef object _touch(self, Node node)
    cpdef bint has_room(self, long size)
    cpdef object fail(self, str fault)
    cpdef object post(self, Node node, object origin, bytes data, long bits, long size, object body)
    cpdef Retirement retire(self, Node node, Entry entry, long outcome)
