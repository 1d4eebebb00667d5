cimport cython

from broker.engine.departure cimport Departure
from broker.engine.durability cimport Durability
from broker.engine.expirations cimport Expirations
from broker.engine.node cimport Node
from broker.engine.schedules cimport Schedules
from broker.engine.turn cimport Turn
from broker.queues.queue cimport Entry

@cython.final
cdef class Settlement:
    cdef Turn _turn
    cdef Durability _durability
    cdef Expirations _expirations
    cdef Departure _departure
    cdef object _letters
    cdef Schedules _schedules
    cdef object _last_values
    cdef public list overdue

    cpdef object acknowledge(self, Node node, Entry entry)
    cpdef object reject(self, Node node, Entry entry)
    cpdef object requeue(self, Node node, Entry entry, bint failed)
    cpdef object spare(self, Node node, Entry entry)
    @cython.locals(time_ms=long)
    cdef object _take_back(self, Node node, Entry entry, bint failed)
    @cython.locals(now_ms=long, time_ms=long)
    cdef long _retry_ms(self, Node node, Entry entry, bint failed) except -1
    cpdef object put_back(self, Node node, Entry entry)
    cpdef object give_up(self, Node node, Entry entry)
    cpdef object passed_on(self, Node node, Entry entry, object way)
    cpdef object dead_letter(self, Node node, Entry entry, str reason)
    @cython.locals(node=Node, entry=Entry)
    cpdef object expire(self)
