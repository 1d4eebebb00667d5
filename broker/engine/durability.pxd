cimport cython

from broker cimport constants
from broker.engine.depths cimport Depths
from broker.engine.node cimport Node
from broker.engine.turn cimport Turn
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
    cpdef bint waits_for_disk(self) except -1
    cpdef object seal(self)
    @cython.locals(synced=long, node=Node)
    cpdef list attend(self)

@cython.final
cdef class Durability:
    cdef Turn _turn
    cdef Depths _depths
    cdef public GroupCommit commit

    cpdef bint is_on(self) except -1
    cpdef bint is_behind(self) except -1
    cpdef bint has_failed(self) except -1
    cpdef object note(self, str key, bytes value)
    cpdef object forget_seen(self, str name, list places)
    cpdef object wait(self, object waiter)
    cpdef long wait_for_disk(self, object waiter) except -1
    cpdef object keep(self, Node node, Entry entry, long expires_ms)
    cpdef object forget(self, Node node, Entry entry)
    cpdef object update(self, Node node, Entry entry)
    @cython.locals(store=Store)
    cpdef long answer_behind(self, Node node, long bits) except -1
    cpdef bint is_unstored(self, Node topic, long bits) except -1
    cpdef bint is_mark_stored(self, Node node) except -1
    @cython.locals(store=Store)
    cpdef object mark_sent(self, Node node, bytes mark)
