cimport cython

# A million of them may wait: no table of methods, 64 bytes and the head of what the collector knows.
@cython.final
@cython.no_gc
cdef class Delayed:
    cdef public bytes data
    cdef public object extra
    cdef public long seq, due_ns, expires_ns
    cdef public unsigned int delivery_count
    cdef public char durable, redelivered, spared, state

cpdef long wake_ns(Delayed delayed) except? -1

@cython.final
cdef class Schedule:
    cdef public long count, nbytes, queued_ns
    cdef public object log
    cdef list _heap
    cdef dict _pages
    cdef long _husks

    @cython.locals(page=list)
    cpdef object add(self, Delayed delayed)
    cpdef long next_ns(self) except -1
    @cython.locals(delayed=Delayed)
    cpdef Delayed take_due(self, long now_ns)
    @cython.locals(page=list)
    cpdef Delayed find(self, long seq)
    cpdef object remove(self, Delayed delayed)
    cpdef object clear(self)
    @cython.locals(at=long, page=list)
    cdef object _forget(self, Delayed delayed)
    @cython.locals(first=Delayed)
    cdef object _drop_husks(self)
