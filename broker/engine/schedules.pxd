from broker cimport constants
from broker.engine.changes cimport Changes
from broker.engine.departure cimport Departure
from broker.engine.depths cimport Depths
from broker.engine.durability cimport Durability
from broker.engine.expirations cimport Expirations
from broker.engine.last_values cimport LastValues
from broker.engine.node cimport Node
from broker.engine.turn cimport Turn
from broker.queues.queue cimport Entry, Queue
from broker.queues.schedule cimport Delayed, Schedule

cimport cython

@cython.final
cdef class Schedules:
    cdef Turn _turn
    cdef Changes _changes
    cdef Depths _depths
    cdef Durability _durability
    cdef Expirations _expirations
    cdef Departure _departure
    cdef object _bodies, _large, _letters
    cdef LastValues _last_values
    cdef list _line
    cdef long _queued
    cdef public long next_ns

    cpdef long time_ms(self, bytes data) except -1
    @cython.locals(keep=bint, delayed=Delayed, expires_ms=long)
    cpdef long put(self, Node node, bytes data, long bits, long size, long time_ms) except -1
    @cython.locals(queue=Queue, delayed=Delayed, expires_ns=long)
    cpdef object put_back(self, Node node, Entry entry, long time_ms)
    cpdef bint has_due(self) except -1
    @cython.locals(now_ns=long, left=long, wake_ns=long, node=Node, schedule=Schedule, delayed=Delayed)
    cpdef object release(self)
    cpdef object cancel(self, Node node, Delayed delayed)
    @cython.locals(schedule=Schedule, delayed=Delayed)
    cpdef long purge(self, Node node) except -1
    cpdef object forget(self, Node node)
    @cython.locals(entry=Entry, older=Entry, keep=bint, expires_ms=long)
    cdef object _make_ready(self, Node node, Delayed delayed)
    cdef object _dead_letter(self, Node node, Delayed delayed)
    @cython.locals(schedule=Schedule)
    cdef object _add(self, Node node, Delayed delayed)
    @cython.locals(next_ns=long)
    cdef object _queue(self, Node node, Schedule schedule)
    cdef object _note_next(self)
    cdef object _leave(self, Node node, Delayed delayed)
    @cython.locals(schedule=Schedule, flags=long, expires_ms=long)
    cdef object _keep(self, Node node, Delayed delayed, bytes data)
    @cython.locals(size=long)
    cdef object _forget_kept(self, Node node, Delayed delayed)
    cdef long _monotonic_ns(self, long time_ms) except -1
    cdef long _wall_ms(self, long time_ns) except -1

cpdef Schedule schedule_of(Node node)
