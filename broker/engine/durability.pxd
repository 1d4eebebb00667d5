cimport cython

from broker.engine.node cimport Node
from broker.queues.queue cimport Entry
from broker.store.port cimport QueueLog, Store

@cython.final
cdef class GroupCommit:
    cdef public Store store
    cdef public list nodes, waiters
    cdef public object groups

    @cython.locals(shelf=QueueLog, flags=long)
    cpdef object keep(self, Node node, Entry entry, long expires_ms)
    cpdef object delay(self, Node node, Entry entry)
    cpdef object watch(self, Node node)
    cpdef long last_group(self)
    cpdef object wait(self, object waiter)
    cpdef object seal(self)
    @cython.locals(synced=long, node=Node)
    cpdef list attend(self)
