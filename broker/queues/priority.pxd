cimport cython

from broker.codec.message cimport priority as priority_of
from broker.queues.queue cimport Entry, Queue, Reader

cdef long LEVELS

# Not final: what overrides methods in a .pxd can't be.
cdef class PriorityQueue(Queue):
    cdef public list levels, turns
    cdef public bint fair
    cdef long _ready_levels, _due_levels

    @cython.locals(level=Queue)
    cpdef Queue level_of(self, bytes data)
    @cython.locals(number=long, level=Queue, ready=long, entry=Entry)
    cpdef Entry append(self, bytes data, bint keep=*)
    @cython.locals(level=Queue)
    cpdef object stored(self, long upto)
    @cython.locals(level=Queue, entry=Entry)
    cpdef Entry fill(self, bytes data, long seq, Entry near=*)
    @cython.locals(number=long, level=Queue, entry=Entry)
    cpdef Entry acquire(self)
    @cython.locals(level=Queue, entry=Entry, number=long, levels=long)
    cpdef Entry acquire_for(self, object consumer)
    @cython.locals(level=Queue, entry=Entry, part=Reader, number=long, levels=long)
    cpdef Entry acquire_next(self, Reader reader)
    @cython.locals(level=Queue, entry=Entry, part=Reader, number=long)
    cpdef Entry look(self, Reader reader)
    @cython.locals(level=Queue, part=Reader)
    cpdef object open_reader(self, Reader reader)
    @cython.locals(level=Queue)
    cpdef object close_reader(self, Reader reader)
    @cython.locals(level=Queue)
    cpdef bint has_more(self, Reader reader)
    @cython.locals(level=Queue)
    cpdef object take(self, Entry entry)
    @cython.locals(level=Queue)
    cpdef object release(self, Entry entry)
    @cython.locals(number=long, level=Queue)
    cpdef object settle(self, Entry entry)
    @cython.locals(level=Queue)
    cpdef object drop(self, Entry entry)
    @cython.locals(level=Queue)
    cpdef object forbid(self, Entry entry, object consumer)
    cpdef object adorn(self, Entry entry, object extra)
    @cython.locals(level=Queue, entry=Entry)
    cpdef Entry oldest(self)
    @cython.locals(number=long, level=Queue, entry=Entry)
    cpdef Entry oldest_below(self, bytes data)
    @cython.locals(level=Queue)
    cpdef Entry least_ready(self)
    @cython.locals(level=Queue)
    cpdef list heads(self)
    @cython.locals(level=Queue)
    cpdef object adopt(self, Entry entry)
    @cython.locals(level=Queue)
    cpdef object clear(self)
    @cython.locals(number=long, level=Queue)
    cpdef object recount(self)
    @cython.final
    cdef tuple _passes(self)
    @cython.final
    @cython.locals(above=long, level=Queue)
    cdef bint _reads_above(self, long number) except -1
    @cython.final
    cdef object _spend_turn(self, long number)
    @cython.final
    cdef object _begin_round(self)
    @cython.final
    cdef object _tell(self, Reader reader, Reader part)

@cython.locals(entry=Entry, reader=Reader, part=Reader)
cpdef object rearrange(Queue source, Queue target)
@cython.locals(entry=Entry)
cdef object _look_on(Queue queue, Reader reader, long passed)
cdef bint _is_read(Queue level) except -1
@cython.locals(number=long)
cdef long _highest(long levels)
