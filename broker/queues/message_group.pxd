cimport cython

from broker cimport constants
from broker.queues.dispatch cimport Consumer
from broker.queues.queue cimport Entry

# No garbage collector header, for there may be a million. Its circles end with its consumer (leave).
@cython.final
@cython.no_gc
cdef class MessageGroup:
    cdef public bytes key
    cdef public GroupMember owner
    cdef public list waiting, skipped
    cdef public long head, held
    cdef public object wanted_by
    cdef public char place
    cdef public bint closing, moves, marked, idle, used

    @cython.locals(waiting=list)
    cdef Entry first(self)
    @cython.locals(waiting=list, taken=long, end=long, entry=Entry)
    cdef long drop_taken(self) except -1
    @cython.locals(waiting=list)
    cdef object pop(self)
    @cython.locals(waiting=list, low=long, high=long, middle=long, last=Entry, other=Entry, spare=long, i=long)
    cdef bint insert(self, Entry entry) except -1
    cdef object take_skipped(self)

@cython.final
cdef class GroupMember:
    cdef public Consumer consumer
    cdef public object wanted, bit
    cdef public long groups, moving
    cdef public list listed
    cdef public bint skips, deals, gone
