cimport cython

from broker cimport constants

@cython.final
cdef class Window:
    cdef public long limit, reopen, unsettled, shut_count, share
    cdef public bint shut, waiting
    cdef public Shared shared
    cdef public object owner

    cpdef object configure(self, long limit, long threshold)
    cpdef long own_room(self)
    @cython.locals(room=long)
    cpdef long room(self)
    cpdef void sent(self)
    cpdef void settled(self)

@cython.final
cdef class Shared:
    cdef public long limit, unsettled
    cdef public bint crowded
    cdef public list line, dealt
    cdef public object want

    cpdef long room(self, Window window)
    cpdef void sent(self, Window window)
    cpdef void settled(self)
    cpdef bint due(self)
    @cython.locals(window=Window, room=long)
    cpdef list deal(self)
    @cython.locals(window=Window)
    cpdef object leave(self, Window window)
    cdef void _wait(self, Window window)
    @cython.locals(window=Window)
    cdef void _end_turns(self)
